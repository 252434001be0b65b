# What to do once all is installed. Sourced by install.sh.

# What `edge build --target` calls this Jetson, by the code that knows its modules.
board_target() {
  "$python" -B -c 'import pathlib, sys
sys.path.insert(0, ".")
from edge.board import find_board
board = find_board(pathlib.Path(sys.argv[1]))
print((board and board.target) or "TARGET")' "$root/" 2>/dev/null || echo TARGET
}

say_next() {
  say "Next:"
  note "$VENV/bin/edge doctor: what this machine offers, and what it is called as a target"
  if [ "$kind" = jetson ]; then say_next_on_jetson; else say_next_on_pc; fi
}

say_next_on_jetson() {
  local bin=$VENV/bin/edge
  if [ -n "$board_python" ] && ! can_finish; then
    note "TensorRT engines need JetPack 7.2 until EdgeZero has the plugin edge::PagedAttention, which JetPack $jetpack needs;"
    note "engines for the CPU work now:"
  elif [ "$system_site" = yes ]; then
    note "on a PC, edge build MODEL --tier int4 --target $(board_target); copy NAME.edge here"
    note "$bin build NAME.edge --finish: the last step, by this board's TensorRT"
  fi
  if can_build; then
    note "$bin build MODEL --tier int4 --target cpu: an engine for the CPU"
  else
    note "on a PC, edge build MODEL --tier int4 --target cpu; copy NAME.edge here"
    note "$bin chat NAME.edge: a package for the CPU runs as it is"
  fi
}

say_next_on_pc() {
  local bin=$VENV/bin/edge card=$card_target which="" wheel="tensorrt-cu12"
  can_build || return 0
  note "$bin build MODEL --tier int4 --target cpu: an engine for the CPU"
  [ "$(uname -m)" = x86_64 ] || return 0
  if [ "$kind" = cpu ]; then
    card=a10 # of the cards that a machine without one can build for
  elif [ -z "$card" ]; then
    card=TARGET which=" (edge doctor says which)"
  fi
  case ,$extras, in
    *,rtx,*) note "$bin build MODEL --tier int4 --target $card$which: an engine of TensorRT-RTX, built without a GPU" ;;
    *) note "./install.sh --with rtx (a download of 370 MB), then $bin build MODEL --tier int4 --target $card$which" ;;
  esac
  [ "$kind" = cuda ] || return 0
  [ "$system_site" = no ] || ! can_finish || return 0
  [ "${driver%%.*}" -lt 580 ] || wheel="tensorrt-cu13" # CUDA 13 begins with driver 580
  note "for engines of the full TensorRT instead (--engine tensorrt): $VENV/bin/python -m pip install $wheel"
}
