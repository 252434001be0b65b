// What the arithmetic of an instruction set allows: dot products from registers, nothing loaded, nothing stored. The other
// denominator, beside bandwidth.h.
#pragma once

namespace edge {

namespace DotKind {
enum : int {
  int8,         // int8 products summed to int32
  int8_scaled,  // the same for weights with a scale and a minimum per 32 inputs: with the conversion and the sums in fp32
  int16,        // pairs of products of int16 summed to int32
  fp32,
  bf16  // pairs of products of bf16 summed to fp32
};
}  // namespace DotKind

// Operations a second (a product and a sum are two) of `threads` threads of the instruction set `isa` (kernels.h) together,
// best of `rounds` of a few milliseconds; 0 where `isa` has no such instruction, or this machine lacks it.
double dot_rate(const char *isa, int kind, int threads, int rounds);

}  // namespace edge
