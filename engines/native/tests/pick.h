// Random whole numbers for the tests.
#pragma once
#include <random>

namespace edge {

inline int pick(std::mt19937 &random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

}  // namespace edge
