// What every attention kernel shares: which positions a row sees, where a page lies, the layout of a task's scratch memory,
// and the few formulas whose order of rounding the twins must agree on. Anonymous for the reason given in math.h.
#pragma once
#include "kernels.h"
#include "math.h"
#include "page_format.h"

namespace edge {
namespace {

constexpr int BLOCK_PAGES = BLOCK_TOKENS / PAGE_TOKENS;
constexpr float NO_MAXIMUM = -__builtin_inff();  // of a row that sees nothing

struct Range {
  int begin, end;
  bool empty() const { return begin >= end; }
};

// The oldest position that a row at `position` sees.
inline int oldest_seen(int position, int window) { return window && position >= window ? position - window + 1 : 0; }
// Of the `count` positions from `start` on, counted from there, those that rows at positions first..last see, any of them;
// {0, 0} for none.
inline Range visible_from(int start, int count, int first, int last, int window) {
  const int oldest = oldest_seen(first, window), begin = oldest > start ? oldest - start : 0;
  const int end = last + 1 - start < count ? last + 1 - start : count;
  return begin < end ? Range{begin, end} : Range{0, 0};
}
inline Range visible(int first, int last, int window, int block) {
  return visible_from(block * BLOCK_TOKENS, BLOCK_TOKENS, first, last, window);
}
inline Range visible_of_page(int position, int window, int page) {
  return visible_from(page * PAGE_TOKENS, PAGE_TOKENS, position, position, window);
}

// The K (side 0) or V (side 1) of one kv head in the page of position page * PAGE_TOKENS, in any format.
struct Part {
  uint8_t *bytes;
  int format;  // PageFormat

  uint16_t *halves() const { return reinterpret_cast<uint16_t *>(bytes); }  // of fp16: K [D][32 tokens], V [32 tokens][D]
};
inline Part part_of(const LayerPages &pages, int seq, int page, int side, int kv_head) {
  const int32_t word = pages.page_table[(int64_t(seq) * pages.max_pages + page) * 2 + side];
  const int64_t index = int64_t(pages.group_layer) * pages.num_kv_heads + kv_head;
  return {pages.pool + offset_of(word) + index * part_bytes(side, format_of(word), pages.head_dim), format_of(word)};
}
// The same of a page that is fp16, as those that a step writes are.
inline uint16_t *page_of(const LayerPages &pages, int seq, int page, int side, int kv_head) {
  const int32_t word = pages.page_table[(int64_t(seq) * pages.max_pages + page) * 2 + side];
  const int64_t head = int64_t(pages.head_dim) * PAGE_TOKENS;
  uint16_t *extent = reinterpret_cast<uint16_t *>(pages.pool + offset_of(word));
  return extent + (int64_t(pages.group_layer) * pages.num_kv_heads + kv_head) * head;
}

// Pages [begin, end) of a block whose V has one format.
struct Segment {
  int begin, end, format;
};
// Those of the pages [begin, end); `format(page)`. Returns how many.
template <class Format>
inline int cut_segments(int begin, int end, Format format, Segment segments[BLOCK_PAGES]) {
  int count = 0;
  for (int page = begin; page < end; ++page) {
    if (count == 0 || segments[count - 1].format != format(page)) segments[count++] = {page, page, format(page)};
    segments[count - 1].end = page + 1;
  }
  return count;
}

// Row `row` of a task: its position, its query, its place in `out`. Rows are token major.
inline int heads_a_token(const AttendParams &p) { return p.pages.num_heads / p.pages.num_kv_heads; }
inline int position_of_row(const AttendParams &p, int row) { return p.row_pos[p.token_begin + row / heads_a_token(p)]; }
inline const float *query_of_row(const AttendParams &p, int row) {
  const int group = heads_a_token(p), head = p.kv_head * group + row % group;
  return p.qkv + (p.token_begin + row / group) * p.qkv_stride + int64_t(head) * p.pages.head_dim;
}
inline float *output_of_row(const AttendParams &p, int row) {
  const int group = heads_a_token(p), head = p.kv_head * group + row % group;
  return p.out + (p.token_begin + row / group) * p.out_stride + int64_t(head) * p.pages.head_dim;
}
inline float *output_of_row(const MergeParams &p, int row) {
  const int group = p.num_heads / p.num_kv_heads, head = p.kv_head * group + row % group;
  return p.out + (p.token_begin + row / group) * p.out_stride + int64_t(head) * p.head_dim;
}

// --- scratch ----------------------------------------------------------------------------------------------------------

constexpr int MAX_HEAD_DIM = 256;  // of the fast kernels; wider heads take the plain loops
constexpr int GROUP_ROWS = 32;     // most rows that a wide kernel holds side by side
constexpr int PASS_ROWS = 512;     // most rows between which the integers of a block are shared

// Rows of a pass: what it keeps of them (queries, outputs) stays in a second-level cache of 512 KiB.
inline int pass_rows(int head_dim) { return head_dim <= 128 ? PASS_ROWS : PASS_ROWS / 2; }

// Scratch of `attend`, of the widest instruction set. Of a block: K as pairs of channels [D / 2][128], V as pairs of tokens
// [64][D], the scales of both, the scores of a group of rows, their weights as pairs of tokens; of sealed pages: queries of a
// group folded with K's scales, and what V's segments gave it so far. Of a pass: queries as integers and as they are, outputs,
// maximum, sum, factor and position of every row.
struct Scratch {
  int32_t *keys, *values, *weights, *folded, *queries, *positions;
  float *key_scales, *value_scales, *scores, *segments, *raw, *outputs, *maxima, *totals, *factors;
};

inline int64_t padded_dim(int head_dim) { return (head_dim + 31) / 32 * 32; }
inline int64_t scratch_floats(int head_dim) {
  const int64_t dim = padded_dim(head_dim), rows = pass_rows(head_dim);
  return 128 * dim + 2 * BLOCK_TOKENS + (192 + dim / 2 + dim) * GROUP_ROWS + rows * (dim / 2 + 2 * dim + 4);
}
inline Scratch lay_out(float *scratch, int head_dim) {
  const int64_t dim = padded_dim(head_dim), rows = pass_rows(head_dim);
  const auto integers = [&scratch](int64_t count) {
    int32_t *at = reinterpret_cast<int32_t *>(scratch);
    scratch += count;
    return at;
  };
  const auto floats = [&scratch](int64_t count) {
    float *at = scratch;
    scratch += count;
    return at;
  };
  Scratch s;
  s.keys = integers(64 * dim);
  s.values = integers(64 * dim);
  s.key_scales = floats(BLOCK_TOKENS);
  s.value_scales = floats(BLOCK_TOKENS);
  s.scores = floats(BLOCK_TOKENS * GROUP_ROWS);
  s.weights = integers(BLOCK_TOKENS / 2 * GROUP_ROWS);
  s.folded = integers(dim / 2 * GROUP_ROWS);
  s.segments = floats(dim * GROUP_ROWS);
  s.queries = integers(rows * dim / 2);
  s.raw = floats(rows * dim);
  s.outputs = floats(rows * dim);
  s.maxima = floats(rows);
  s.totals = floats(rows);
  s.factors = floats(rows);
  s.positions = integers(rows);
  return s;
}

// --- formulas; V as in math.h ---------------------------------------------------------------------------------------

// Attention inside a block is a matter of integers, so that no order of summing can show:
//   a row of q       q_d = round(q * QUERY_STEPS / max|q|),  a token's K  k_d = round(k * KEY_STEPS / max|k|),
//   a token's V      v_d = round(v * VALUE_STEPS / max|v|),
//   score            sum(q_d k_d) * (K's scale) * (q's scale), in units of log 2,
//   weight           w_j = 2^(score - maximum) * (V's scale), of a row u_j = round(w_j * WEIGHT_STEPS / max w),
//   sums             sum_j(round(2^16 2^(score - maximum))) < 2^24, exact as floats, and sum_j(u_j v_jd).
// Of a sealed page, x = minimum + scale * c, c the integers that it keeps:
//   a row of q       q_d = round(q * scale_d * steps / max|q scale|) of each page of K,
//                    score sum(q_d c_d) * (its scale) + sum(q minimum_d),
//   weight           of the tokens of a segment and each group of channels w_j scale_j, u_j from them,
//                    outputs sum_j(u_j c_jd) * (u's scale) + sum_j(w_j minimum_j); segments are added in ascending order.
// Of int8 pages the steps are those of fp16 pages. Of int4 and int2 pages they fit 8 bits, whose products cost half as much;
// c is counted from the middle m of its range, so that an error of q_d or u_j meets c - m and not c:
//                    sum(q_d c_d) * (its scale) - m * (its scale) * sum(q_d) + sum(q (minimum_d + m scale_d)), V likewise.
// The sums with minima are fp32 fused over 16 lanes (channel or token % 16), then the tree.
// 32 bits hold 256 channels of 4095 * 2047, and 128 tokens of 8191 * 2047. Measured on SmolLM2-135M, 2,048 tokens, against fp32
// attention: KL 0.0033, as between any two roundings of it (the int8 activations around it do that). int8 for q and K: 0.0043;
// int8 for V and weights: 0.0036, and weights below 1/510 of a block's largest would be gone.
// What 8 bits cost sealed pages (`edge bench kv --context 2048`, SmolLM2-135M, two sets of four texts, KL against exact):
// K4/V4 0.0077 and 0.0061, with 12 and 13 bits 0.0079 and 0.0062; K8/V4 0.0046 and 0.0042, before 0.0047 and 0.0039.
constexpr float QUERY_STEPS = 4095.0f, KEY_STEPS = 2047.0f, VALUE_STEPS = 2047.0f, WEIGHT_STEPS = 8191.0f;
constexpr float BYTE_QUERY_STEPS = 127.0f, BYTE_WEIGHT_STEPS = 255.0f;
constexpr float SMALLEST = 0x1p-100f;      // divisors below it are it, which keeps zeros zeros and quotients finite
constexpr float SMALLEST_HALF = 0x1p-24f;  // of fp16, likewise
constexpr float LOG2_E = 1.44269504089f;
constexpr float MOST_BELOW = -60.0f;  // weights of 2^-60 and less are all alike: nothing
constexpr int WEIGHT_POWER = 16;      // weights are summed in units of 2^-16

// Steps a unit of numbers that are at most `largest`.
template <class V>
inline V steps_of(V largest, float steps, float smallest) {
  return V(steps) / larger(largest, V(smallest));
}

// x in steps, rounded to nearest even: the low 16 bits are the integer.
template <class V>
inline V in_steps(V x, V factor) {
  return fused(x, factor, V(ROUNDING));
}

// The largest magnitude of a query from its bits; 0, and so a row of equal scores, where it is no number.
inline float query_magnitude(uint32_t bits) { return bits < 0x7f800000u ? float_of(bits) : 0.0f; }
// That of a token's K or V from the bits of fp16.
inline float half_magnitude(uint16_t bits) { return bits < 0x7c00u ? half_to_float(bits) : 0.0f; }

// What sum(q k) is worth as a score in units of log 2; `factor` of the row: score_factor.
template <class V>
inline V score_factor(V query_scale, float soft_cap) {
  return soft_cap > 0.0f ? query_scale : query_scale * V(LOG2_E);
}
template <class V>
inline V score_of(V sum, V key_scale, V factor, float soft_cap) {
  const V score = sum * key_scale * factor;
  if (!(soft_cap > 0.0f)) return score;
  const V cap(soft_cap);
  return cap * hyperbolic_tangent(score / cap) * V(LOG2_E);
}

// Of a sealed page of K; `factor` and `base` went through score_factor.
template <class V>
inline V sealed_score_of(V sum, V factor, V base, float soft_cap) {
  const V score = fused(sum, factor, base);
  if (!(soft_cap > 0.0f)) return score;
  const V cap(soft_cap);
  return cap * hyperbolic_tangent(score / cap) * V(LOG2_E);
}

// Of sealed pages in a format: steps of folded queries and of weights, and the middle of what a page keeps, from which it
// counts where those steps are few.
constexpr float query_steps(int format) { return format == PageFormat::int4 ? BYTE_QUERY_STEPS : QUERY_STEPS; }
constexpr float weight_steps(int format) { return format >= PageFormat::int4 ? BYTE_WEIGHT_STEPS : WEIGHT_STEPS; }
constexpr float middle_code(int format) { return format == PageFormat::int4 ? 7.5f : format == PageFormat::int2 ? 1.5f : 0.0f; }
template <class V>
inline V middle_of(V minimum, V scale, int format) {
  return fused(scale, V(middle_code(format)), minimum);
}
// `middles`: sum(q middle_d) or sum_j(w_j middle_j); `step`, `integers`: of the q_d or u_j, what one is worth and their sum.
template <class V>
inline V base_of(V middles, V step, V integers, int format) {
  return fused(step * V(-middle_code(format)), integers, middles);
}
// An integer as a float, from what in_steps gave.
template <class V>
inline V integer_of(V steps) {
  return steps - V(ROUNDING);
}

// What a page may be to a row of q, from its K's minima and scales: the score in the middle of each channel's range, and REACH
// of the way from there to the most that q.k could be. Of SmolLM2-135M at 8,192 tokens, a quarter of the pages being read, the
// most itself (1.0; Quest, arXiv 2406.10774, section 3) left out a tenth more of the softmax, as the middle did (0.0): channels
// do not reach their ends together.
constexpr float REACH = 0.5f;
template <class V>
inline V reach_of(V q) {  // sum(q * minimum) + levels * sum(reach_of(q) * scale) is the score
  return q * V(0.5f) + absolute(q) * V(0.5f * REACH);
}
inline float most_level(int format) { return float((1 << (16 >> format)) - 1); }  // of what a sealed page keeps
template <class V>
inline V page_score_of(V score, float soft_cap) {  // in units of log 2
  if (!(soft_cap > 0.0f)) return score * V(LOG2_E);
  const V cap(soft_cap), capped = cap * hyperbolic_tangent(score / cap) * V(LOG2_E);
  return select_less(score, V(-__FLT_MAX__), score, capped);  // -inf stays
}
// Of pages that are not ranked: the first, and those that fill 16.
inline void blank_unranked(float *scores, int pages) {
  scores[0] = NO_MAXIMUM;
  for (int page = pages; page % 16; ++page) scores[page] = NO_MAXIMUM;
}

// Mass: of each row and page, in fp32, K as what its page keeps,
//   score            sum(q_d K_d), fused, channels ascending, in units of log 2,
//   power            sum_j 2^(score_j - most of the page), over 16 lanes (token % 16), then the tree,
//   share            power * 2^(most of the page - most of the row) / sum over pages, over 16 lanes (page % 16), then the tree.
// Shares are rounded to whole MASS_STEPS; those of MASS_ROWS rows are below 2^24, exact as floats.
static_assert(MASS_ROWS * MASS_STEPS < 1 << 24);
template <class V>
inline V share_of(V power, V factor, V total) {
  return rounded(power * factor / total * V(float(MASS_STEPS)));
}
// Of rows whose numbers are not finite: none.
inline int64_t mass_of(float shares) { return shares >= 0.0f && shares < 0x1p24f ? int64_t(shares) : 0; }
// Pages that rows of a task see, from a multiple of 16 on.
struct SeenPages {
  int begin, end, base;
};
inline SeenPages pages_of_rows(const AttendParams &p) {
  const int first = p.row_pos[p.token_begin], last = p.row_pos[p.token_end - 1];
  const int begin = oldest_seen(first, p.window) / PAGE_TOKENS;
  return {begin, last / PAGE_TOKENS + 1, begin / 16 * 16};
}

// 2^(x + POWER) of x <= 0, relative error 3e-6 (minimax polynomial of degree 4); 2^(MOST_BELOW + POWER) below MOST_BELOW and
// for the NaN of two rows that see nothing.
template <int POWER, class V>
inline V power_of(V x) {
  constexpr float SHIFT = ROUNDING + float(POWER);
  const V clamped = larger(x, V(MOST_BELOW)), shifted = clamped + V(SHIFT), part = clamped - (shifted - V(SHIFT));
  V p = fused(V(0.009582818485796452f), part, V(0.05590637028217316f));
  p = fused(p, part, V(0.24024099111557007f));
  p = fused(p, part, V(0.6931241750717163f));
  p = fused(p, part, V(1.0f));
  return times_power(p, shifted);
}

// The outputs of a block, and their merge with those of the blocks before it.
template <class V>
inline V output_of_block(V sum, V largest_weight) {
  return sum * (largest_weight * V(1.0f / WEIGHT_STEPS));
}
template <class V>
inline V output_of_sealed(V sum, V step, V base) {
  return fused(sum, step, base);
}
template <class V>
inline V merged(V old, V old_factor, V block, V block_factor) {
  return fused(old, old_factor, block * block_factor);
}
// Adding +0 makes a zero positive, whichever way it came about. A row that saw nothing has a total of 0, any other 2^15 or
// more.
template <class V>
inline V final_output(V merged_outputs, V total) {
  return merged_outputs / larger(total, V(1.0f)) + V(0.0f);
}

// Half-rotation: channels i and i + D/2 turn together.
template <class V>
inline V rotated_first(V first, V second, V cosine, V sine) {
  return fused(first, cosine, V(0.0f) - second * sine);
}
template <class V>
inline V rotated_second(V first, V second, V cosine, V sine) {
  return fused(second, cosine, first * sine);
}

// Saturates before the conversion to fp16: an infinity in V would reach rows that do not see it, as 0 * infinity. A NaN stays.
template <class V>
inline V half_range(V x) {
  return smaller(V(65504.0f), larger(V(-65504.0f), x));
}

}  // namespace
}  // namespace edge
