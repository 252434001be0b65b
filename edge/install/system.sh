# What must be there before anything is installed: system packages, a compiler, room on the disk. Sourced by install.sh.

# What compiling and virtual environments need on Debian and Ubuntu.
APT="apt-get install g++ python3-dev python3-venv"

# The apt package of $1 (dev, venv) for the chosen Python: python3-dev for the system's default, python3.12-dev for another.
python_package() {
  if [ "$(version_of "$root/usr/bin/python3")" = "$python_version" ]; then
    printf 'python3-%s' "$1"
  else
    printf 'python%s-%s' "$python_version" "$1"
  fi
}

# Fills facts and packages: what is not here that Python $1 needs to compile the native core in an environment.
find_missing() {
  local compiler=${CXX:-c++}
  facts=() packages=()
  if ! command -v "$compiler" >/dev/null; then
    facts+=("no C++ compiler ($compiler)")
    packages+=(g++)
  fi
  if ! has_headers "$1"; then
    facts+=("no Python.h in $(headers_of "$1")")
    packages+=("$(python_package dev)")
  fi
  if ! "$1" -c 'import ensurepip' 2>/dev/null; then
    facts+=("no module venv for $1")
    packages+=("$(python_package venv)")
  fi
}

# The same for the GPU: without these, CPU engines work all the same.
find_missing_for_gpu() {
  gpu_packages=()
  [ -n "$board_python" ] || return 0
  [ -n "$tensorrt_python" ] || ! can_finish || gpu_packages+=(python3-libnvinfer)
  [ -n "$cuda_home" ] || gpu_packages+=(nvidia-cuda-dev)
}

apt_install() {
  local sudo=""
  command -v apt-get >/dev/null || die "--system needs apt-get. Install by hand: $*"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "--system needs root, and there is no sudo. As root: apt-get install $*"
    sudo=sudo
  fi
  # One repository of many that does not answer is enough for an error, and often not the one that is needed.
  run $sudo apt-get update -qq || note "apt-get update failed, why stands above. Going on with the package lists that are here."
  run_quietly $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" ||
    die "apt-get could not install $*: its reason stands above"
}

check_compiler() {
  local compiler=${CXX:-c++} major
  command -v "$compiler" >/dev/null || return 0 # a dry run with --system goes on without it
  major=$("$compiler" -dumpversion | cut -d. -f1)
  if "$compiler" --version | grep -qi clang; then
    [ "$major" -ge 14 ] || die "$compiler is clang $major; the native core needs clang 14 or g++ 11. Set CXX"
  else
    [ "$major" -ge 11 ] || die "$compiler is g++ $major; the native core needs g++ 11 or newer. Set CXX"
  fi
}

# System packages for Python $1: named where they are missing, installed where --system was given.
need_system_packages() {
  local facts packages gpu_packages
  find_missing "$1"
  find_missing_for_gpu
  if [ "$system" = yes ]; then
    packages+=("${gpu_packages[@]}")
    if [ ${#packages[@]} -gt 0 ]; then
      say "System packages: ${packages[*]}"
      apt_install "${packages[@]}"
      if [ "$dry_run" = no ]; then
        find_missing "$1"
        find_cuda
        find_tensorrt
      else
        packages=()
      fi
    fi
  fi
  [ ${#packages[@]} -eq 0 ] ||
    die "cannot compile here: $(join "; " "${facts[@]}"). Install: apt-get install ${packages[*]}, or let ./install.sh --system do it"
  check_compiler
  if [ "$system" = no ] && [ ${#gpu_packages[@]} -gt 0 ]; then
    note "For the GPU the system lacks: apt-get install ${gpu_packages[*]}, or ./install.sh --system. Going on without."
  fi
}

# $1 megabytes where the environment goes and where pip builds.
need_room() {
  local folder free
  for folder in . "${TMPDIR:-/tmp}"; do
    free=$(df -Pm "$folder" 2>/dev/null | awk 'NR == 2 { print $4 }' || true)
    [ -z "$free" ] || [ "$free" -ge "$1" ] ||
      die "only $free MB free in $(cd "$folder" && pwd); this needs $1 MB there. Free some, or move this folder (for pip's part: set TMPDIR)"
  done
}

need_writable_folder() {
  [ -w . ] || die "$(pwd) cannot be written to. Copy or clone it to a folder of yours, and run ./install.sh there"
}
