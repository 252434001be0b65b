# How install.sh speaks, and how it runs what changes something. Sourced by install.sh.

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

is_one_of() { case " $2 " in *" $1 "*) return 0 ;; *) return 1 ;; esac }

# Joined $2... with $1 between them.
join() {
  local between=$1 joined=$2 word
  for word in "${@:3}"; do joined+=$between$word; done
  printf '%s' "$joined"
}
