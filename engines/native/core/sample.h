// One pass over a row of logits: the best, the best k, the sum of exponentials. Owns nothing. Needs: nothing. Never: threads,
// random numbers, the order of filters (edge/sampling.py).
#pragma once
#include <cstdint>

namespace edge {

struct BestLogit {
  int32_t id;   // the lowest of equals; 0 beside a NaN
  float value;  // NaN where any logit is
};
BestLogit best_logit(const float *logits, int64_t count);  // count at least 1

// A score is (logit - top) / temperature in fp32, top being the best logit: 0 or less. No logit is a NaN here.
struct Scores {
  const float *logits;
  int64_t count;
  float top, temperature;
  float of(float logit) const { return (logit - top) / temperature; }
};
// The k best scores with their ids, the best first, the lower id first where two are equal. k is 1 to count.
void best_scores(const Scores &scores, int64_t k, int32_t *ids, float *values);
// Sum of exp(score), to 1e-6 of its value; 0 for scores below -87.
double sum_exponentials(const Scores &scores);

}  // namespace edge
