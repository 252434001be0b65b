# ./install.sh test: every check, then every test, on every Python that is found. Sourced by install.sh.

# shellcheck source=tests/aarch64.sh
. tests/aarch64.sh

# Unit tests of arithmetic and plain loops, which run on the oldest Python and on the first: the others cannot differ in them.
PURE="anchors calibration kv_eval pages planner runtime scheduler"

passed=0 failed=0 skipped=0
arm_package=no # whether the emulated Python has the wheel

skip() {
  skipped=$((skipped + 1))
  say "SKIPPED $1: needs $2"
}

# One check that is a single command: $1 its name, the rest the command. Its output is shown when it fails.
check() {
  local name=$1 log
  shift
  if [ "$dry_run" = yes ]; then
    note "would run: $*"
    return
  fi
  log=$(mktemp)
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    say "passed: $name"
  else
    failed=$((failed + 1))
    say "FAILED: $name ($*)"
    cat "$log"
  fi
  rm -f "$log"
}

# check, where command $2 is there; else a skip that names package $3.
check_with() {
  local name=$1 tool=$2 package=$3
  shift 3
  if command -v "$tool" >/dev/null; then
    check "$name" "$@"
  else
    skip "$name" "the system package $package (./install.sh test --system installs it)"
  fi
}

# pytest of environment $1, further words to pytest. Counts its tests, and fails once more when it ends in an error.
run_pytest() {
  local venv=$1 report counts good bad left code=0
  shift
  if [ "$dry_run" = yes ]; then
    note "would run: $venv/bin/pytest $*"
    return
  fi
  report=build/reports/$(basename "$venv").xml
  mkdir -p build/reports
  rm -f "$report"
  # Not `python -m pytest`, which puts this folder first: the tests must see what was installed, native core included.
  # Slow tests stand in front, so the order stays; more processes would each make the packages that tests share.
  "$venv/bin/pytest" -q --junitxml="$report" --numprocesses=auto --maxprocesses=4 --dist=loadgroup --no-loadscope-reorder \
    "$@" || code=$?
  counts=$("$venv/bin/python" - "$report" <<'PYTHON'
import sys
import xml.etree.ElementTree as tree

try:
    suites = list(tree.parse(sys.argv[1]).getroot().iter("testsuite"))
except (OSError, tree.ParseError):
    suites = []
tests, failures, errors, skipped = (sum(int(s.get(k, 0)) for s in suites) for k in ("tests", "failures", "errors", "skipped"))
print(tests - failures - errors - skipped, failures + errors, skipped)
PYTHON
  )
  read -r good bad left <<<"$counts"
  # 5: no test was selected, which pytest arguments can bring about. Other codes without a failed test: pytest itself broke.
  if [ "$code" -ne 0 ] && [ "$code" -ne 5 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
}

# The build folder $1 of an extension, where it has the kernels; nothing otherwise.
kernels_in() { [ ! -f "$1/libedge_core.a" ] || (cd "$1" && pwd); }

# C++ tests in build folder $1, with the kernels of build folder $2 ("": its own); further words to cmake.
native_tests() {
  local folder=$1 kernels=$2
  shift 2
  cmake -S engines/native -B "$folder" -DCMAKE_BUILD_TYPE=Release "-DEDGE_CORE_FROM=$kernels" "$@" &&
    cmake --build "$folder" --parallel "$(nproc)" &&
    ctest --test-dir "$folder" --output-on-failure --parallel "$(nproc)"
}

# Plans and steps that nobody wrote, in a core that ends at the first access outside of an object.
sanitized_plans() {
  cmake -S engines/native -B build/native-sanitized -DCMAKE_BUILD_TYPE=Release -DEDGE_SANITIZE=ON &&
    cmake --build build/native-sanitized --parallel "$(nproc)" --target plan_fuzz &&
    build/native-sanitized/plan_fuzz 20000
}

# A package that another Python built, proved and asked by environment $1.
use_package() {
  "$1/bin/edge" verify "$2" && "$1/bin/edge" run "$2" "$QUESTION" --max-tokens 8
}

install_tools() {
  local missing=() pair
  for pair in aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64:qemu-user \
    shellcheck:shellcheck clang-format:clang-format; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "System packages for the C++ tests and the checks: all there"
    return
  fi
  say "System packages, for the C++ tests and the checks: ${missing[*]}"
  apt_install "${missing[@]}"
}

test_all() {
  local version other sources package pins kernels arm_kernels="" name pure=()
  choose_python
  need_build_python "The test suite"
  for version in "" $PYTHONS; do need_ours ".venv-test${version:+-$version}"; done # before any test is run
  [ "$system" = no ] || install_tools
  need_system_packages "$python"

  say "Virtual environment .venv-test, fresh, with Python $python_version; compiles the native core"
  remove_venv .venv-test
  make_venv .venv-test "$python"
  pip_install .venv-test ".[dev,rtx]" cmake # rtx has a wheel for x86-64 alone, and its marker says so
  [ "$dry_run" = yes ] || PATH="$(pwd)/.venv-test/bin:$PATH"

  say "Checks"
  check "ruff check" .venv-test/bin/ruff check .
  check "ruff format" .venv-test/bin/ruff format --check .
  check "mypy" .venv-test/bin/mypy
  mapfile -t sources < <(find engines/native -name '*.h' -o -name '*.cpp')
  check_with "clang-format" clang-format clang-format clang-format --dry-run --Werror "${sources[@]}"
  check_with "shellcheck" shellcheck shellcheck shellcheck --external-sources --check-sourced install.sh .ci/run

  say "C++ tests"
  kernels=$(kernels_in "$(echo "build/cp${python_version/./}-"*)")
  check "C++ tests on $(uname -m)" native_tests build/native-linked "$kernels"
  check "plans and steps under sanitizers" sanitized_plans
  if [ "$(uname -m)" != aarch64 ]; then
    say "The wheel for aarch64, and C++ tests of its kernels"
    test_wheel
    [ "$arm_package" = no ] || arm_kernels=$(kernels_in "$(echo build/wheel-*-aarch64)")
    if ! command -v qemu-aarch64 >/dev/null; then
      skip "C++ tests on aarch64" "the system package qemu-user (./install.sh test --system installs it)"
    else
      check_with "C++ tests on aarch64 (qemu)" aarch64-linux-gnu-g++ g++-aarch64-linux-gnu \
        native_tests build/native-aarch64-linked "$arm_kernels" \
        "-DCMAKE_TOOLCHAIN_FILE=$(pwd)/engines/native/aarch64.cmake" \
        "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu"
    fi
  fi

  say "Tests on Python $python_version"
  run_pytest .venv-test "$@"
  package=""
  if [ $# -eq 0 ]; then # words for pytest ask for less than everything
    package=build/reports/$MODEL.edge
    check "edge build, for the other Pythons" .venv-test/bin/edge build "$MODEL" --verify-tokens 512 --out "$package" --force
    [ "$arm_package" = no ] || check "edge run on aarch64 (qemu)" same_answer_on_arm "$package" .venv-test
  fi

  for version in $PYTHONS; do
    [ "$version" != "$python_version" ] || continue
    other=$(find_python "$version")
    if [ -z "$other" ] || ! has_headers "$other"; then
      skip "tests on Python $version" "that Python with its headers, on PATH or from pyenv"
      continue
    fi
    say "Tests that need no export on Python $version: the runtime alone, as on a device"
    remove_venv ".venv-test-$version"
    make_venv ".venv-test-$version" "$other"
    pins=()
    [ "$version" != 3.10 ] || pins=("${BOARD_PINS[@]}") # as on JetPack 6
    # Folders of their own: those of an installation must not learn to link what was compiled elsewhere.
    SKBUILD_BUILD_DIR="build/test-{wheel_tag}" SKBUILD_CMAKE_ARGS="-DEDGE_CORE_FROM=$kernels" \
      pip_install ".venv-test-$version" ".[test]" "${pins[@]}"
    pure=()
    if [ "$version" != 3.10 ]; then for name in $PURE; do pure+=("--ignore=tests/unit/$name"); done; fi
    # What install.sh does is the same whichever Python runs its tests, and so is what many examples find.
    run_pytest ".venv-test-$version" -m "not build" --ignore=tests/unit/install "${pure[@]}" --hypothesis-profile=few "$@"
    [ -z "$package" ] || check "edge verify, edge run on Python $version" use_package ".venv-test-$version" "$package"
  done

  [ "$dry_run" = no ] || return 0
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ]
}

