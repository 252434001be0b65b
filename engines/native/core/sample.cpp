#include "sample.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

namespace edge {
namespace {

// Four floats, in the registers that every processor of an architecture has: rows of logits come from the cache, so wider ones
// would gain little, and this file needs no copy for each instruction set.
typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourBits __attribute__((vector_size(16)));
constexpr int LANES = 16, FOURS = LANES / 4;
constexpr int64_t CHUNK_ROWS = 64, CHUNK = CHUNK_ROWS * LANES;
constexpr int64_t SUM_ROWS = 16;  // whose exponentials are added in fp32

Four load(const float *x) {
  Four v;
  std::memcpy(&v, x, sizeof v);
  return v;
}

// Maxima of the columns of a chunk, whose logits are taken as rows of LANES: whatever stands in one is found by its maximum.
// Whether none is a NaN.
bool column_maxima(const float *x, int64_t count, float *maxima) {
  Four largest[FOURS];
  FourBits nans[FOURS] = {};
  for (Four &lanes : largest) lanes = Four{} - __builtin_inff();
  int64_t at = 0;
  for (; at + LANES <= count; at += LANES) {
    for (int i = 0; i < FOURS; ++i) {
      const Four v = load(x + at + 4 * i);
      largest[i] = v > largest[i] ? v : largest[i];
      nans[i] |= v != v;
    }
  }
  std::memcpy(maxima, largest, sizeof largest);
  bool has_nan = false;
  for (const FourBits &lanes : nans) has_nan = has_nan || lanes[0] || lanes[1] || lanes[2] || lanes[3];
  for (int64_t i = 0; at < count; ++i, ++at) {
    if (x[at] > maxima[i]) maxima[i] = x[at];
    has_nan = has_nan || x[at] != x[at];
  }
  return !has_nan;
}

// e^x for x of 0 or less, in steps that round alike everywhere: Cephes expf without fused steps.
Four exponential_of(Four x) {
  const Four rounding = Four{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const Four lowest = Four{} - 87.0f;
  const Four clamped = x > lowest ? x : lowest;
  const Four shifted = clamped * 1.44269504f + rounding;
  const Four n = shifted - rounding;
  const Four r = clamped - n * 0.693359375f - n * -2.12194440e-4f;
  Four p = Four{} + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  FourBits power;
  std::memcpy(&power, &shifted, sizeof power);
  power = (power << 23) + 0x3f800000;
  Four two_to_n;
  std::memcpy(&two_to_n, &power, sizeof two_to_n);
  return x < lowest ? Four{} : p * two_to_n;
}

struct Candidate {
  float score;
  int32_t id;
};
bool is_better(const Candidate &a, const Candidate &b) { return a.score > b.score || (a.score == b.score && a.id < b.id); }

}  // namespace

BestLogit best_logit(const float *logits, int64_t count) {
  float best = -__builtin_inff(), maxima[LANES];
  int64_t best_chunk = 0;
  for (int64_t begin = 0; begin < count; begin += CHUNK) {
    if (!column_maxima(logits + begin, std::min(CHUNK, count - begin), maxima)) return {0, __builtin_nanf("")};
    for (const float maximum : maxima) {
      if (maximum > best) {
        best = maximum;
        best_chunk = begin;
      }
    }
  }
  const float *chunk = logits + best_chunk;
  return {static_cast<int32_t>(std::find(chunk, logits + count, best) - logits), best};
}

void best_scores(const Scores &scores, int64_t k, int32_t *ids, float *values) {
  const int64_t columns = (scores.count + CHUNK - 1) / CHUNK * LANES;
  std::vector<float> maxima(static_cast<size_t>(columns));
  for (int64_t begin = 0, column = 0; begin < scores.count; begin += CHUNK, column += LANES) {
    column_maxima(scores.logits + begin, std::min(CHUNK, scores.count - begin), &maxima[static_cast<size_t>(column)]);
  }
  for (float &maximum : maxima) maximum = scores.of(maximum);  // a score never falls as its logit grows
  // k columns hold a score each that is as good as this, so the k best are too. Without so many columns all may be.
  float bar = -__builtin_inff();
  if (k <= columns) {
    std::vector<float> sorted = maxima;
    std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<float>());
    bar = sorted[static_cast<size_t>(k - 1)];
  }
  std::vector<Candidate> found;
  for (int64_t column = 0; column < columns; ++column) {
    if (!(maxima[static_cast<size_t>(column)] >= bar)) continue;
    const int64_t begin = column / LANES * CHUNK, end = std::min(begin + CHUNK, scores.count);
    for (int64_t id = begin + column % LANES; id < end; id += LANES) {
      const float score = scores.of(scores.logits[id]);
      if (score >= bar) found.push_back({score, static_cast<int32_t>(id)});
    }
  }
  const auto end = found.begin() + k;
  if (end != found.end()) std::nth_element(found.begin(), end, found.end(), is_better);
  std::sort(found.begin(), end, is_better);
  for (int64_t i = 0; i < k; ++i) {
    ids[i] = found[static_cast<size_t>(i)].id;
    values[i] = found[static_cast<size_t>(i)].score;
  }
}

double sum_exponentials(const Scores &scores) {
  double sum = 0.0;
  for (int64_t begin = 0; begin < scores.count; begin += SUM_ROWS * LANES) {
    const int64_t end = std::min(begin + SUM_ROWS * LANES, scores.count);
    Four sums[FOURS] = {};
    for (int64_t at = begin; at < end; at += LANES) {
      float row[LANES];
      for (float &logit : row) logit = -__builtin_inff();
      std::memcpy(row, scores.logits + at, static_cast<size_t>(std::min<int64_t>(LANES, end - at)) * sizeof(float));
      for (int i = 0; i < FOURS; ++i) sums[i] += exponential_of((load(row + 4 * i) - scores.top) / scores.temperature);
    }
    for (const Four &lanes : sums) sum += double{lanes[0]} + double{lanes[1]} + double{lanes[2]} + double{lanes[3]};
  }
  return sum;
}

}  // namespace edge
