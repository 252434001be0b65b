#!/usr/bin/env bash
# Sets EdgeZero up from a checkout. Run it with --help. Its parts lie in edge/install; the test command in tests/run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
home=~ # also where HOME is not set

usage() {
  cat <<'TEXT'
Usage: ./install.sh [COMMAND] [OPTIONS]

Commands:
  (none)     make the virtual environment .venv and install edge-zero into it, with what building packages needs
  demo       the same, then fetch a small model, build it for this CPU and ask it one question
  wheel      wheels of edge-zero in dist, one for each Python that is found (PYTHON: for that one alone)
  test       a fresh virtual environment .venv-test, all checks and all tests; further words go to pytest

Options:
  --with EXTRA[,EXTRA]  install more: rtx (engines for A10-class cards, built without a GPU; 370 MB), server, hub, gpu, bench
  --arch ARCH  for wheel: this machine's architecture, or aarch64 from another one, cross-compiled: for a Jetson's CPU engine
  --system     install missing system packages with apt-get; for test also qemu, shellcheck, clang-format
  --uninstall  remove what this script and its tools made in this folder; pulled models stay, and it says where
  --dry-run    say what would be done, do nothing
  -h, --help   this text

On a Jetson (JetPack 6.1 or newer, or 7.2) the environment is made by the system's Python and sees the system's TensorRT;
pycuda is compiled where nvcc is found. Without --system nothing outside this folder changes. A run that was stopped goes on
where it stopped.

PYTHON=/path/to/python3.12 ./install.sh    chooses the Python.
TEXT
}

[ -d edge/install ] || {
  printf 'install.sh: no folder edge/install in %s. Run it from a whole checkout\n' "$(pwd)" >&2
  exit 1
}
# shellcheck source=edge/install/words.sh
. edge/install/words.sh
# shellcheck source=edge/install/machine.sh
. edge/install/machine.sh
# shellcheck source=edge/install/python.sh
. edge/install/python.sh
# shellcheck source=edge/install/system.sh
. edge/install/system.sh
# shellcheck source=edge/install/steps.sh
. edge/install/steps.sh
# shellcheck source=edge/install/next.sh
. edge/install/next.sh
# shellcheck source=edge/install/uninstall.sh
. edge/install/uninstall.sh
# shellcheck source=edge/install/demo.sh
. edge/install/demo.sh
# shellcheck source=edge/install/wheel.sh
. edge/install/wheel.sh

# One run at a time: two would write the same build folder. The lock goes when the last process that inherited it ends.
lock() {
  [ "$dry_run" = no ] || return 0
  exec 9<install.sh
  flock -n 9 || die "another ./install.sh is at work in $(pwd). Wait for it to end"
}

stopped() {
  printf 'install.sh: stopped. What is done stays; run it again to go on\n' >&2
  exit 130
}

command=install dry_run=no system=no with="" extras="" arch=""
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
    --with)
      [ $# -gt 1 ] || misuse "--with takes names of extras: $EXTRAS"
      for name in ${2//,/ }; do
        is_one_of "$name" "$EXTRAS" || misuse "--with $name: no such extra. There are: $EXTRAS"
        with+=${with:+ }$name
      done
      shift
      ;;
    --arch)
      [ $# -gt 1 ] || misuse "--arch takes the name of an architecture: aarch64"
      arch=$2
      shift
      ;;
    demo | test | wheel)
      if [ "$command" = test ]; then pytest_words+=("$1"); else command=$1; fi
      ;;
    *)
      [ "$command" = test ] || misuse "unknown word: $1"
      pytest_words+=("$1")
      ;;
  esac
  shift
done
[ "$system" = no ] || [ "$command" != uninstall ] || misuse "--system installs; it does not go with --uninstall"
[ -z "$with" ] || is_one_of "$command" "install demo" || misuse "--with does not go with $command"
[ -z "$arch" ] || [ "$command" = wheel ] || misuse "--arch goes with the command wheel alone"
trap stopped INT TERM HUP

case $command in
  install)
    lock
    look_around
    install_edge
    say_next
    ;;
  demo)
    lock
    demo
    ;;
  wheel)
    lock
    build_wheels
    ;;
  test)
    [ -f tests/run.sh ] || die "the tests are not in this copy. Run them from a checkout"
    # shellcheck source=tests/run.sh
    . tests/run.sh
    lock
    test_all "${pytest_words[@]}"
    ;;
  uninstall)
    lock
    uninstall
    ;;
esac
