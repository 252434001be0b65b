# What takes an installation back. Sourced by install.sh.

remove() {
  [ "$dry_run" = yes ] || note "$1"
  if is_ours "$1"; then remove_venv "$1"; else run rm -rf -- "$1"; fi
}

# Removes what this script and its tools made here, and nothing else.
uninstall() {
  local paths=("$VENV" .venv-test) version
  local cache="${EDGE_CACHE:-${XDG_CACHE_HOME:-$home/.cache}/edge-zero}" path
  say "Removing what this script made here"
  for version in $PYTHONS; do paths+=(".venv-test-$version" ".venv-wheel-$version"); done
  for path in "${paths[@]}"; do
    is_there "$path" || continue
    if is_ours "$path"; then
      remove "$path"
    else
      note "$path stays: this script did not make it."
    fi
  done
  { find tests edge engines calibration -name __pycache__ -type d -prune -print0 2>/dev/null || true; } | # no tests in an sdist
    while IFS= read -r -d '' path; do remove "$path"; done
  for path in build/cp3* build/test-* build/native* build/wheel* build/headers build/aarch64 build/reports .pytest_cache .mypy_cache .ruff_cache .hypothesis; do
    [ ! -e "$path" ] || remove "$path"
  done
  [ ! -d build ] || [ "$dry_run" = yes ] || rmdir --ignore-fail-on-non-empty build
  [ ! -d "$cache" ] || note "Pulled models stay in $cache. To remove them too: rm -r '$cache'"
  [ ! -d dist ] || note "Wheels stay in $(pwd)/dist."
  note "Packages (*.edge) stay where you built them, and so do system packages that --system installed."
}
