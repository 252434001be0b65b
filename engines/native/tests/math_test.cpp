// The elementwise functions of math.h against double precision, and half precision against its definition.
#include "math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "expect.h"

namespace edge {
namespace {

// Units in the last place of the float nearest to `exact`.
double ulps(float found, double exact) {
  int exponent;
  std::frexp(exact, &exponent);
  return std::fabs(double(found) - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

void test_elementwise_functions_are_accurate() {
  double worst_exp = 0, worst_silu = 0, worst_gelu = 0, worst_tanh = 0;
  for (float x = -87.0f; x < 88.0f; x += 0.00371f) {
    worst_exp = std::max(worst_exp, ulps(exponential(x), std::exp(double(x))));
    if (std::fabs(x) > 20.0f) continue;
    worst_silu = std::max(worst_silu, ulps(silu(x), x / (1.0 + std::exp(-double(x)))));
    worst_tanh = std::max(worst_tanh, ulps(hyperbolic_tangent(x), std::tanh(double(x))));
    const double inner = 0.7978845608028654 * (x + 0.044715 * double(x) * x * x);
    worst_gelu = std::max(worst_gelu, std::fabs(gelu_tanh(x) - 0.5 * x * (1.0 + std::tanh(inner))));
  }
  expect(worst_exp <= 2.0, "exponential is off by %.2f ulp", worst_exp);
  expect(worst_silu <= 4.0, "silu is off by %.2f ulp", worst_silu);
  expect(worst_tanh <= 4.0, "hyperbolic_tangent is off by %.2f ulp", worst_tanh);
  expect(worst_gelu <= 2e-6, "gelu_tanh is off by %g", worst_gelu);
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  expect(exponential(-infinity) == 0.0f && exponential(-87.5f) == 0.0f && exponential(0.0f) == 1.0f,
         "exponential is not exact");
  expect(std::isfinite(exponential(infinity)) && exponential(infinity) > 2e38f, "exponential does not stay finite");
  expect(std::isnan(exponential(nan)) && std::isnan(silu(nan)) && std::isnan(gelu_tanh(nan)) &&
             std::isnan(hyperbolic_tangent(nan)),
         "a NaN does not stay one");
  expect(hyperbolic_tangent(infinity) == 1.0f && hyperbolic_tangent(-infinity) == -1.0f,
         "hyperbolic_tangent does not saturate");
}

void test_halves_round_to_nearest_even() {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float x = half_to_float(uint16_t(half));
    const bool nan = (half & 0x7fff) > 0x7c00;
    expect(nan ? std::isnan(x) && (float_to_half(x) & 0x7fff) > 0x7c00 : float_to_half(x) == half, "half %04x does not return",
           half);
    if ((half & 0x7fff) >= 0x7bff) continue;  // up to the last pair of finite neighbours
    const float next = half_to_float(uint16_t(half + 1)), middle = float((double(x) + next) / 2);
    expect(float_to_half(middle) == half + (half & 1), "between half %04x and the next: not to even", half);
    expect(float_to_half(std::nextafter(middle, x)) == half, "just below the middle behind half %04x", half);
    expect(float_to_half(std::nextafter(middle, next)) == half + 1, "just above the middle behind half %04x", half);
  }
  expect(float_to_half(65519.0f) == 0x7bff && float_to_half(65520.0f) == 0x7c00, "the border of infinity");
}

}  // namespace
}  // namespace edge

int main() {
  edge::test_elementwise_functions_are_accurate();
  edge::test_halves_round_to_nearest_even();
  std::printf("%d failures\n", edge::failures);
  return edge::failures ? 1 : 0;
}
