// The check of the kernel tests: counts failures, prints the first of them.
#pragma once
#include <cstdio>

namespace edge {

inline int failures = 0;

template <class... Arguments>
void expect(bool good, const char *format, Arguments... arguments) {
  if (good || ++failures > 20) return;
  std::printf("FAILED ");
  std::printf(format, arguments...);
  std::printf("\n");
}

}  // namespace edge
