// Whole-number arithmetic of layouts.
#pragma once
#include <cstdint>

namespace edge {

constexpr int64_t align_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
constexpr int32_t divide_up(int32_t value, int32_t by) { return (value + by - 1) / by; }

}  // namespace edge
