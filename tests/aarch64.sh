# The wheel for aarch64, cross-compiled here and run by Debian's Python for arm64 under qemu. Sourced by run.sh.

EMULATED=build/aarch64

# apt-get for arm64 alone, with lists of its own: the system's packages stay as they are.
arm_apt() {
  local folder
  folder=$(pwd)/$EMULATED/apt
  mkdir -p "$folder/state/lists/partial" "$folder/cache/archives/partial"
  : >"$folder/status"
  apt-get -qq -o Dir::State="$folder/state" -o Dir::State::status="$folder/status" -o Dir::Cache="$folder/cache" \
    -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Architectures::=arm64 "$@"
}

# Python with its libraries, unpacked into $EMULATED/root; 16 MB to download.
fetch_arm_python() {
  local package
  [ ! -x $EMULATED/root/usr/bin/python3 ] || return 0
  arm_apt update && arm_apt -y --download-only --no-install-recommends install python3-minimal libpython3-stdlib libstdc++6 ||
    return 1
  mkdir -p $EMULATED/root
  for package in "$EMULATED"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" $EMULATED/root || return 1; done
}

emulated() { PYTHONPATH=$EMULATED/site qemu-aarch64 -L "$EMULATED/root" "$EMULATED/root/usr/bin/python3" -P "$@"; }

# With Python $1, as ./install.sh wheel --arch aarch64 does. A shell of its own, as build_wheels ends it where it fails.
cross_wheel() (arch=aarch64 WHEELS=$EMULATED/wheels PYTHON=$1 && rm -rf "$WHEELS" && build_wheels)

# The wheel and what it needs, chosen by pip of environment $1 as on a board with that Python and glibc 2.36.
install_for_arm() {
  local platforms=() minor wheel
  for minor in 17 28 31 34 35 36; do platforms+=(--platform "manylinux_2_${minor}_aarch64"); done
  wheel=$(echo "$EMULATED"/wheels/*.whl)
  rm -rf "$EMULATED/site"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --target "$EMULATED/site" --only-binary :all: \
    "${platforms[@]}" --platform manylinux2014_aarch64 "${wheel}[test]"
}

# The best instruction set of qemu's newest processor is there, and the kernels' Python tests pass.
native_tests_on_arm() {
  emulated -c 'import edge._core; assert edge._core.best_instruction_set() == "neon-i8mm", edge._core.instruction_sets()' &&
    emulated -m pytest -q -p no:cacheprovider tests/unit/native
}

# Package $1 gives the answer that environment $2 gets from it on this machine's own processor.
same_answer_on_arm() {
  local here there
  here=$("$2/bin/edge" run "$1" "$QUESTION" --max-tokens 8) &&
    there=$(emulated "$EMULATED/site/bin/edge" run "$1" "$QUESTION" --max-tokens 8) || return 1
  [ "$here" = "$there" ] || { printf 'here: %s\naarch64: %s\n' "$here" "$there" && return 1; }
}

test_wheel() {
  local name="wheel for aarch64" version builder
  [ "$dry_run" = no ] || return 0
  if ! command -v qemu-aarch64 >/dev/null || ! command -v "$CROSS_COMPILER" >/dev/null; then
    skip "$name" "the system packages qemu-user and g++-aarch64-linux-gnu (./install.sh test --system installs them)"
    return
  fi
  if ! command -v apt-get >/dev/null || ! fetch_arm_python >/dev/null 2>&1; then
    skip "$name" "apt-get with a source of arm64 packages, for a Python to emulate"
    return
  fi
  version=$(version_of emulated)
  builder=$(find_python "$version")
  if [ -z "$builder" ] || ! has_headers "$builder"; then
    skip "$name" "Python $version with its headers, the version of Debian's for arm64"
    return
  fi
  check "$name, cross-compiled" cross_wheel "$builder"
  check "$name, installed for an emulated Python" install_for_arm ".venv-wheel-$version"
  check "$name, its kernels' tests (qemu)" native_tests_on_arm
  arm_package=yes
}
