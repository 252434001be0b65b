# What this machine is. Reads files below $root alone, so that a test can lay any machine in a folder. Sourced by install.sh.

root=${EDGE_INSTALL_ROOT:-} # for tests: the folder that stands for /

kind=cpu           # jetson, cuda (x86-64 with an NVIDIA driver) or cpu
board=""           # /proc/device-tree/model of a Jetson
l4t=""             # Jetson Linux: 36.4.3
jetpack=""         # 6.2
board_python=""    # the Python that this JetPack's TensorRT belongs to; empty where its GPU is not used
gpu=""             # name of the first card of a CUDA host
driver=""          # its version: 580.95.05
cuda_home=""       # the folder with bin/nvcc
cuda_version=""    # 12.6
tensorrt=""        # version of the system's TensorRT: 10.3.0.30
tensorrt_python="" # the Python that its module is for; empty where the libraries are there and the module is not
jtop_unit=""       # the unit file of jetson-stats' service
jtop=""            # version of that service
card_target=""     # what `edge build --target` calls a CUDA host's card; empty where there is no profile for it

# Version of installed Debian package $1, or nothing.
dpkg_version() {
  [ -r "$root/var/lib/dpkg/status" ] || return 0
  awk -v want="$1" '
    BEGIN { RS = ""; FS = "\n" }
    {
      name = state = version = ""
      for (i = 1; i <= NF; i++) {
        if ($i ~ /^Package: /) name = substr($i, 10)
        else if ($i ~ /^Status: /) state = substr($i, 9)
        else if ($i ~ /^Version: /) version = substr($i, 10)
      }
      if (name == want && state ~ / installed$/) { print version; exit }
    }' "$root/var/lib/dpkg/status"
}

# Text of the device tree's file $1, whose strings end in NUL.
device_tree() { tr '\0' '\n' 2>/dev/null <"$root/proc/device-tree/$1" || true; }

is_jetson() {
  [ -e "$root/etc/nv_tegra_release" ] || device_tree compatible | grep -q '^nvidia,tegra' || [ -n "$(dpkg_version nvidia-l4t-core)" ]
}

read_l4t() {
  local line="" form='^# R([0-9]+) \(release\), REVISION: ([0-9.]*[0-9])'
  if [ -r "$root/etc/nv_tegra_release" ]; then read -r line <"$root/etc/nv_tegra_release" || true; fi
  if [[ $line =~ $form ]]; then
    l4t=${BASH_REMATCH[1]}.${BASH_REMATCH[2]}
  else # a container has the packages and not that file
    l4t=$(dpkg_version nvidia-l4t-core)
    l4t=${l4t%%-*}
  fi
}

# Sets jetpack, and board_python where EdgeZero's TensorRT engines can live on it; says otherwise why not.
# https://developer.nvidia.com/embedded/jetpack-archive, as in edge/board.py
read_jetpack() {
  local newest="" why=""
  local for_thor="that is for Jetson Thor, for which EdgeZero has no target; Jetson Orin needs 7.2"
  case $l4t in
    36.4 | 36.4.0 | 36.4.2) jetpack=6.1 board_python=3.10 ;;
    36.4.3) jetpack=6.2 board_python=3.10 ;;
    36.4.4 | 36.4.7) jetpack=6.2.1 board_python=3.10 ;;
    36.5 | 36.5.0) jetpack=6.2.2 board_python=3.10 ;;
    39.2 | 39.2.0) jetpack=7.2 board_python=3.12 ;;
    39.2.1) jetpack=7.2.1 board_python=3.12 ;;
    36.[0-3] | 36.[0-3].*) jetpack=6.0 why="its TensorRT is 8.6; EdgeZero needs 10.15, and JetPack 7.2 brings 10.16" ;;
    36.*) jetpack=6 board_python=3.10 newest="36.5.0" ;;
    38.[0-3] | 38.[0-3].*) jetpack=7.0 why="$for_thor" ;;
    38.*) jetpack=7.1 why="$for_thor" ;;
    39.[01] | 39.[01].*) jetpack="7.2 early access" why="update it to JetPack 7.2 (L4T 39.2)" ;;
    39.*) jetpack=7 board_python=3.12 newest="39.2.1" ;;
    3[45].*) jetpack=5 why="its TensorRT is 8; EdgeZero needs 10.15. Flash JetPack 7.2" ;;
    2?.* | 3[0-3].*) jetpack="4 or older" why="it is too old for EdgeZero's TensorRT engines" ;;
    "") jetpack="" why="neither /etc/nv_tegra_release nor the package nvidia-l4t-core says which JetPack this is" ;;
    *) jetpack="" why="this release of EdgeZero knows no such JetPack; a newer one may" ;;
  esac
  case $board in
    *Thor*) board_python="" why="EdgeZero has no target for Jetson Thor" ;;
  esac
  say "Machine: ${board:-a Jetson}, ${jetpack:+JetPack $jetpack, }L4T ${l4t:-unknown}, $(uname -m)"
  [ -z "$why" ] || note "Only CPU engines will work here: $why."
  if [ -n "$newest" ] && [ -n "$board_python" ]; then
    note "L4T $l4t is not one that EdgeZero was written for (up to $newest); going on as for JetPack $jetpack."
  fi
}

read_driver() {
  local line="" file form='Kernel Module (for [a-z0-9_]+)? *([0-9]+(\.[0-9]+)+)'
  [ -r "$root/proc/driver/nvidia/version" ] || return 0
  read -r line <"$root/proc/driver/nvidia/version" || true
  [[ $line =~ $form ]] || return 0
  driver=${BASH_REMATCH[2]}
  for file in "$root"/proc/driver/nvidia/gpus/*/information; do
    [ -r "$file" ] || continue
    [ -n "$gpu" ] || gpu=$(sed -n 's/^Model:[[:space:]]*//p' "$file")
  done
}

find_cuda() {
  local folder found=""
  for folder in "${CUDA_ROOT:-}" "${CUDA_HOME:-}" "$root/usr/local/cuda" "$root"/usr/local/cuda-* "$root/usr"; do
    if [ -n "$folder" ] && [ -x "$folder/bin/nvcc" ]; then
      found=$folder
      break
    fi
  done
  [ -n "$found" ] || return 0
  cuda_home=$found
  cuda_version=$("$found/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p' || true)
}

find_tensorrt() {
  local folder info
  tensorrt="" tensorrt_python=""
  for folder in "$root"/usr/lib/python3.*/dist-packages "$root"/usr/local/lib/python3.*/dist-packages; do
    [ -f "$folder/tensorrt/__init__.py" ] || continue
    tensorrt_python=${folder%/dist-packages}
    tensorrt_python=${tensorrt_python##*/python}
    for info in "$folder"/tensorrt-*.dist-info; do
      [ -d "$info" ] || continue
      tensorrt=${info##*/tensorrt-}
      tensorrt=${tensorrt%.dist-info}
    done
    break
  done
  info=$(dpkg_version python3-libnvinfer)
  [ -n "$info" ] || info=$(dpkg_version libnvinfer10)
  if [ -n "$info" ]; then tensorrt=${info%%-*}; fi # the package counts the build: 10.3.0.30, the module says 10.3.0
}

# Whether TensorRT $1 reads graphs of standard operators, as 10.15 and newer do (engines/tensorrt/lower.py). Older ones need
# the plugin edge::PagedAttention, which EdgeZero does not have yet.
reads_standard_graphs() {
  local major minor
  IFS=. read -r major minor _ <<<"$1"
  [ "${major:-0}" -gt 10 ] || { [ "${major:-0}" -eq 10 ] && [ "${minor:-0}" -ge 15 ]; }
}

# Whether `edge build --finish` can make a plan with this machine's TensorRT, or with the one that its JetPack brings.
can_finish() {
  case $tensorrt,$jetpack in
    ,7*) return 0 ;; # 10.16
    *) reads_standard_graphs "$tensorrt" ;;
  esac
}

# The service of jetson-stats, and its version, told by the library beside the program that the unit starts.
find_jtop() {
  local program info
  jtop_unit=$root/etc/systemd/system/jtop.service
  if [ ! -f "$jtop_unit" ]; then
    jtop_unit=""
    return
  fi
  program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$jtop_unit" | head -n 1)
  program=$(readlink -f "$root$program" || true)
  for info in "${program%/bin/*}"/lib/python3*/*-packages/jetson_stats-*; do
    [[ ${info##*/} =~ ^jetson_stats-([0-9.]*[0-9]) ]] || continue
    jtop=${BASH_REMATCH[1]}
  done
}

look_at_gpu_software() {
  find_cuda
  find_tensorrt
  if [ -n "$cuda_home" ]; then
    note "CUDA ${cuda_version:-of unknown version}: $cuda_home/bin/nvcc"
  else
    note "No nvcc in /usr/local/cuda/bin."
  fi
  if [ -n "$tensorrt_python" ]; then
    note "TensorRT ${tensorrt:-of unknown version} of the system, for its Python $tensorrt_python"
  elif [ -n "$tensorrt" ]; then
    note "TensorRT $tensorrt of the system, without its Python module (package python3-libnvinfer)"
  else
    note "No TensorRT in the system's packages."
  fi
}

look_at_machine() {
  if is_jetson; then
    kind=jetson
    board=$(device_tree model | head -n 1)
    read_l4t
    read_jetpack
    find_jtop
    [ -z "$board_python" ] || look_at_gpu_software
    return
  fi
  read_driver
  if [ -n "$driver" ] && [ "$(uname -m)" = x86_64 ]; then
    kind=cuda
    case $gpu in # the names in edge/machine.py
      "NVIDIA A10") card_target=a10 ;;
      "NVIDIA A10G") card_target=a10g ;;
      "NVIDIA L4") card_target=l4 ;;
    esac
    say "Machine: x86_64 with ${gpu:-an NVIDIA GPU}, driver $driver"
    look_at_gpu_software
  else
    say "Machine: $(uname -m)${driver:+ with ${gpu:-an NVIDIA GPU}}"
    [ -z "$driver" ] || note "EdgeZero has no target for this GPU: only CPU engines will work here."
  fi
}
