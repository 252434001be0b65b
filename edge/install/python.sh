# Which Python, and the virtual environment that it makes. Sourced by install.sh.

PYTHONS="3.10 3.11 3.12 3.13"  # what the package supports
BUILD_PYTHONS="3.11 3.12 3.13" # what exporting and building need: ONNX with opset 24

# TensorRT's own requirements name numpy 1.23 and 1.26 (python/requirements.txt of 10.3 and 10.16), so an environment that
# sees the system's TensorRT keeps numpy 1. Both have wheels for aarch64.
BOARD_PINS=("numpy>=1.26,<2")

python=""         # the program itself
python_version="" # 3.12
system_site=no    # whether the environment sees the packages of the system's Python

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true; }

# The program itself, not a shim of pyenv: a virtual environment must not depend on which version is selected.
program_of() { "$1" -c 'import os, sys; print(os.path.realpath(sys.executable))'; }

# Path of a Python of version $1: on PATH, or among pyenv's (whose shims exist for versions that are not selected).
find_python() {
  local candidate
  for candidate in "python$1" python3 "${PYENV_ROOT:-$home/.pyenv}"/versions/"$1"*/bin/python; do
    if [ "$(version_of "$candidate")" = "$1" ]; then
      program_of "$candidate"
      return
    fi
  done
}

# Path of the system's own Python where it is version $1: the one whose packages apt installs.
find_system_python() {
  local candidate
  for candidate in "$root/usr/bin/python$1" "$root/usr/bin/python3"; do
    if [ "$(version_of "$candidate")" = "$1" ]; then
      program_of "$candidate"
      return
    fi
  done
}

# Sets python, python_version and system_site, and says why: $PYTHON; the system's where TensorRT is; the default Python
# where that can build; the first that can.
choose_python() {
  local version found="" wanted=$board_python
  # A CUDA host's TensorRT is worth the system's Python only where that can build too.
  if [ "$kind" = cuda ] && can_finish && is_one_of "$tensorrt_python" "$BUILD_PYTHONS"; then wanted=$tensorrt_python; fi
  if [ -n "${PYTHON:-}" ]; then
    python_version=$(version_of "$PYTHON")
    [ -n "$python_version" ] || die "PYTHON=$PYTHON does not run. Give the path of a Python 3.11 or newer"
    is_one_of "$python_version" "$PYTHONS" || die "PYTHON=$PYTHON is Python $python_version. Supported: $PYTHONS"
    python=$(program_of "$PYTHON")
    say "Python $python_version: $python, as PYTHON says"
    case $python in
      "$root"/usr/bin/*) [ "$python_version" != "${wanted:-$tensorrt_python}" ] || system_site=yes ;;
    esac
    if [ "$system_site" = no ] && [ -n "$wanted" ]; then
      note "The system's TensorRT belongs to $root/usr/bin/python$wanted: this environment will not see it."
    fi
    return
  fi
  if [ -n "$wanted" ]; then
    python=$(find_system_python "$wanted")
    if [ -n "$python" ]; then
      python_version=$wanted system_site=yes
      say "Python $python_version: $python, the system's, because the system's TensorRT belongs to it"
      return
    fi
    note "The system's own Python $wanted is not at $root/usr/bin: without it TensorRT cannot be seen. Mend: apt-get install python$wanted"
  fi
  for version in $(version_of python3) $BUILD_PYTHONS; do
    is_one_of "$version" "$BUILD_PYTHONS" || continue
    found=$(find_python "$version")
    [ -z "$found" ] || break
  done
  if [ -n "$found" ]; then
    python=$found python_version=$version
  else
    python=$(find_python 3.10) python_version=3.10
    if [ -z "$python" ]; then
      found=$(version_of python3)
      die "no Python of $PYTHONS found (python3 is ${found:-not there}). Install one with its headers and venv, or set PYTHON to its path"
    fi
  fi
  say "Python $python_version: $python"
  [ "$kind" = cuda ] && [ -n "$tensorrt_python" ] || return 0
  if can_finish; then
    note "The system's TensorRT belongs to Python $tensorrt_python, which cannot export models. To finish packages"
    note "with it here: PYTHON=$root/usr/bin/python$tensorrt_python ./install.sh"
  else
    note "The system's TensorRT is left aside: EdgeZero needs 10.15 or newer."
  fi
}

can_build() { is_one_of "$python_version" "$BUILD_PYTHONS"; }

need_build_python() {
  local here="found only $python_version. Set PYTHON"
  can_build && return
  [ -z "$board_python" ] ||
    here="JetPack's Python is $python_version. Run it on a PC: the package that it builds runs here too"
  die "$1 exports a model, which needs Python 3.11 or newer (ONNX with opset 24); $here"
}

# Where the headers of Python $1 should be.
headers_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("include"))'; }
has_headers() { [ -f "$(headers_of "$1")/Python.h" ]; }

# An environment is marked as made here before anything is in it, and as whole when it is: one that a stop cut short is made
# anew, and one that somebody else made is never touched.
is_ours() {
  [ -d "$1/.edge-install" ] || [ -e "$1/edge-installed-from" ] # the file: what earlier versions left
}

# Whether anything has the name $1, be it a link to nowhere.
is_there() { [ -e "$1" ] || [ -L "$1" ]; }

need_ours() {
  ! is_there "$1" || is_ours "$1" ||
    die "$(pwd)/$1 is not an environment that this script made. Move it away, then run this again"
}

# Removes environment $1, its mark last, so that one whose removal was cut short is still known as ours.
remove_venv() {
  is_there "$1" || return 0
  need_ours "$1"
  [ "$dry_run" = yes ] || find "$1" -mindepth 1 -maxdepth 1 -not -name .edge-install -exec rm -rf -- {} +
  run rm -rf -- "$1"
}

# What an environment of Python $1 is made of.
form_of_venv() { printf '%s system-site-packages=%s\n' "$("$1" --version) $1" "$system_site"; }

# A virtual environment $1 made by Python $2, with the system's packages where system_site says so. A whole one of that form
# is kept.
make_venv() {
  local options=()
  if [ "$(cat "$1/.edge-install/venv" 2>/dev/null)" = "$(form_of_venv "$2")" ] &&
    "$1/bin/python" -m pip --version >/dev/null 2>&1; then
    return
  fi
  [ "$system_site" = no ] || options+=(--system-site-packages)
  remove_venv "$1"
  [ "$dry_run" = yes ] || mkdir -p "$1/.edge-install"
  if ! run "$2" -m venv "${options[@]}" "$1"; then
    remove_venv "$1"
    die "$2 cannot make virtual environments. Install the module: $APT"
  fi
  [ "$dry_run" = yes ] || form_of_venv "$2" >"$1/.edge-install/venv"
}

pip_install() {
  local venv=$1
  shift
  # --prefer-binary: an older version with a wheel for this machine rather than a newer one to compile.
  run "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --prefer-binary "$@" ||
    die "pip could not install $* into $venv: its reason stands above. Mend that, then run this again; it goes on from here"
}
