# The steps of an installation into .venv. Each leaves a stamp when it is done, made of what it was made from: a run goes on
# where the last one stopped, and one that has nothing to do says so. Sourced by install.sh.

VENV=.venv
STAMPS=$VENV/.edge-install
EXTRAS="rtx server hub gpu bench" # what --with takes; build comes by itself, pycuda and jetson-stats where they belong
PYCUDA="pycuda>=2024.1"

stands() { [ "$(cat "$STAMPS/$1" 2>/dev/null)" = "$2" ]; }
stamp() { [ "$dry_run" = yes ] || printf '%s\n' "$2" >"$STAMPS/$1"; }
unstamp() { [ "$dry_run" = yes ] || rm -f "$STAMPS/$1"; }

# A digest of all that the package is made from, so that a second run need not compile again.
source_digest() {
  { "$python" --version && find edge engines calibration yaml pyproject.toml -type f \
    -not -path '*/__pycache__/*' -not -path 'edge/install/*' -print0 |
    LC_ALL=C sort -z | xargs -0 sha256sum; } | sha256sum | cut -d' ' -f1
}

# Sets extras: build where this Python can, those of --with, and those that an earlier run was asked for.
decide_extras() {
  local asked="$with" before name
  extras=""
  before=$(sed -n 's/^extras //p' "$STAMPS/asked" 2>/dev/null || true)
  for name in $before; do is_one_of "$name" "$asked" || asked+=" $name"; done
  with=$asked
  if is_one_of rtx "$asked"; then
    [ "$(uname -m)" = x86_64 ] || die "--with rtx: tensorrt-rtx-cu13 is for x86-64 alone; on $(uname -m), engines are built by the board's own TensorRT"
    can_build || die "--with rtx builds engines, which needs Python 3.11 or newer; this is $python_version. Set PYTHON"
  fi
  if can_build; then
    extras=build
  else
    note "It runs packages that were built on a PC: exporting a model needs Python 3.11 (ONNX with opset 24), so onnx and"
    note "onnxruntime stay out."
  fi
  for name in $EXTRAS; do
    if is_one_of "$name" "$asked"; then extras+=${extras:+,}$name; fi
  done
}

# Megabytes that the steps need at their fullest.
room() {
  case ,$extras, in
    *,rtx,*) echo 1500 ;; # 524 installed, 370 downloaded
    *,build,*) echo 700 ;; # 292 installed
    *) echo 400 ;;
  esac
}

install_package() {
  local key pins=() what="edge-zero${extras:+[$extras]}"
  key="$(source_digest) $extras"
  # The command must run: a checkout that was moved has the right stamp, and a script that names the old place.
  if stands edge-zero "$key" && stands venv "$(form_of_venv "$python")" && "$VENV/bin/edge" --version >/dev/null 2>&1; then
    say "$what is installed in $VENV already, from these very sources"
    return
  fi
  need_writable_folder
  need_system_packages "$python"
  need_room "$(room)"
  if [ "$system_site" = yes ]; then
    pins=("${BOARD_PINS[@]}")
    say "Virtual environment $VENV, so that nothing outside this folder changes; it sees the system's TensorRT"
  else
    say "Virtual environment $VENV, so that nothing outside this folder changes"
  fi
  make_venv "$VENV" "$python"
  stamp asked "extras $with"
  unstamp edge-zero # a stop from here on must not leave the stamp of an older installation
  say "$what into it: compiles the native core, a minute or two${pins:+; ${pins[*]}, which TensorRT was built for}"
  pip_install "$VENV" ".${extras:+[$extras]}" "${pins[@]}"
  [ "$dry_run" = no ] || return 0
  stamp edge-zero "$key"
  say "Installed: $(pwd)/$VENV/bin/edge"
  if [ "$system_site" = yes ] && [ -n "$tensorrt_python" ]; then
    "$VENV/bin/python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("tensorrt") is None)' ||
      note "The system's TensorRT is not seen in $VENV: is $root/usr/lib/python$tensorrt_python/dist-packages whole?"
  fi
}

# A step that the rest can do without: $1 its name, $2 its stamp, the rest its pip words. It never fails the installation.
optional_step() {
  local name=$1 key=$2 log=$STAMPS/$1.log
  shift 2
  if [ "$dry_run" = yes ]; then
    note "would run: $VENV/bin/python -m pip install $*"
    return
  fi
  if "$VENV/bin/python" -m pip install --disable-pip-version-check "$@" >"$log" 2>&1; then
    rm -f "$log"
    stamp "$name" "$key"
  else
    note "pip could not install $name; the rest works without it. Why: $(pwd)/$log. The next run tries again."
  fi
}

install_pycuda() {
  local header key
  [ "$kind" = cuda ] || [ -n "$board_python" ] || return 0
  if [ -z "$cuda_home" ]; then
    say "pycuda: left out, because compiling it needs nvcc. Once that is installed, run this again"
    return
  fi
  for header in cuda.h curand.h; do
    if [ ! -e "$cuda_home/include/$header" ]; then
      say "pycuda: left out, because compiling it needs $cuda_home/include/$header. Once that is installed, run this again"
      return
    fi
  done
  key="CUDA $cuda_version at $cuda_home"
  if stands pycuda "$key"; then
    say "pycuda is installed already, for CUDA $cuda_version"
    return
  fi
  say "pycuda, for GPU memory and launches: compiled with $cuda_home/bin/nvcc, several minutes"
  PATH=$cuda_home/bin:$PATH CUDA_ROOT=$cuda_home optional_step pycuda "$key" "$PYCUDA"
}

# The library must have the first two numbers of the service's version (jtop/core/common.py, compare_versions).
install_jetson_stats() {
  local key pip=() mend="sudo pip3 install -U jetson-stats"
  [ "$kind" = jetson ] || return 0
  if [ -z "$jtop" ]; then
    [ "$board_python" != 3.12 ] || mend="sudo pip3 install --break-system-packages -U jetson-stats"
    # The wheel alone: as root, building 7.x from source installs a system service (its setup.py).
    key="newest" pip=(--only-binary jetson-stats "jetson-stats>=7.2")
  elif [ "${jtop%%.*}" -ge 7 ]; then
    key=$(cut -d. -f1,2 <<<"$jtop")
    pip=(--only-binary jetson-stats "jetson-stats==$key.*")
  else
    key=$(cut -d. -f1,2 <<<"$jtop")
    pip=("jetson-stats==$key.*")
  fi
  if stands jetson-stats "$key"; then
    say "jetson-stats is installed already${jtop:+, for version $jtop of its service}"
  else
    say "jetson-stats, for power and temperatures${jtop:+: version $jtop, as its service}"
    optional_step jetson-stats "$key" "${pip[@]}"
  fi
  [ -n "$jtop_unit" ] || note "Its service is not installed, so it has nothing to read yet. To install that, system-wide: $mend"
}

# What this machine is, and the Python for it.
look_around() {
  look_at_machine
  choose_python
}

install_edge() {
  decide_extras
  install_package
  install_pycuda
  install_jetson_stats
}
