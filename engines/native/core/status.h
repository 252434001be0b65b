// What a call into the core returns. Nothing throws across it.
#pragma once

namespace edge {

struct Status {
  const char *message = nullptr;  // static text: the fact; null: fine
  int where = -1;                 // index of the op, tensor, sequence or row it is about
  bool cancelled = false;
  bool good() const { return message == nullptr && !cancelled; }
};

}  // namespace edge
