// What rows give to pages, for any SIMD instruction set: a second look at K, since attention gives outputs and no shares.
// Include it behind what attention_panels.h asks for.
//
// Of SmolLM2-135M at 8,192 tokens the 64 rows of a prompt take 18 GFLOP, in fp32.
#pragma once
#include "attention_narrow.h"
#include "attention_sealed.h"

namespace edge {
namespace {

// Rows side by side. Sums of each, 16 NARROW_TOKENS tokens wide, fill half of the registers or less.
constexpr int MASS_TILE = NARROW_TOKENS == 2 ? 8 : 4;
static_assert(MASS_ROWS % MASS_TILE == 0 && PAGE_TOKENS % (16 * NARROW_TOKENS) == 0);

// A page of K as floats, [D][32 tokens].
inline void fill_floats(Part part, int dim, float *panel) {
  if (part.format == PageFormat::fp16) {
    for (int i = 0; i < dim * PAGE_TOKENS; i += 16) Lanes::load_half(part.halves() + i).store(panel + i);
    return;
  }
  const Sealed keys(part, 0, dim);
  float scales[MAX_HEAD_DIM], minima[MAX_HEAD_DIM];
  for (int d = 0; d < dim; d += 16) {
    Lanes::load_half(keys.scales + d).store(scales + d);
    Lanes::load_half(keys.minima + d).store(minima + d);
  }
  with_bits(part.format, [&](auto bits) {
    const uint32_t *from = keys.words;
    for (int d = 0; d < dim; d += 2 * bits.pairs, from += PAGE_TOKENS) {
      for (int token = 0; token < PAGE_TOKENS; token += 16) {
        PackedPairs packed = PackedPairs::load(from + token);
#pragma GCC unroll 8
        for (int pair = 0; pair < bits.pairs; ++pair) {
          const WordPairs both = packed.template take<bits.bits>();
          for (int half = 0; half < 2; ++half) {
            const int at = d + 2 * pair + half;
            const Lanes value = to_float(dot_pairs(Ints::zero(), both, WordPairs::all(half ? 1 << 16 : 1)));
            fused(value, Lanes(scales[at]), Lanes(minima[at])).store(panel + at * PAGE_TOKENS + token);
          }
        }
      }
    }
  });
}

// scores[row][32 tokens] of MASS_TILE rows of q and a page.
__attribute__((noinline)) void multiply_floats(const float *const *queries, const float *panel, int dim, float *scores) {
  for (int token = 0; token < PAGE_TOKENS; token += 16 * NARROW_TOKENS) {
    Lanes sums[MASS_TILE][NARROW_TOKENS];
#pragma GCC unroll 8
    for (int r = 0; r < MASS_TILE; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < NARROW_TOKENS; ++i) sums[r][i] = Lanes(0.0f);
    }
    const float *keys = panel + token;
    for (int d = 0; d < dim; ++d, keys += PAGE_TOKENS) {
      Lanes key[NARROW_TOKENS];
#pragma GCC unroll 4
      for (int i = 0; i < NARROW_TOKENS; ++i) key[i] = Lanes::load(keys + 16 * i);
#pragma GCC unroll 8
      for (int r = 0; r < MASS_TILE; ++r) {
        const Lanes query(queries[r][d]);
#pragma GCC unroll 4
        for (int i = 0; i < NARROW_TOKENS; ++i) sums[r][i] = fused(query, key[i], sums[r][i]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < MASS_TILE; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < NARROW_TOKENS; ++i) sums[r][i].store(scores + r * PAGE_TOKENS + token + 16 * i);
    }
  }
}

// A row's largest score on a page, and its power, from scores [32] that are not yet scaled.
inline void weigh_page(const float *scores, float soft_cap, Range seen, float *most, float *power) {
  if (seen.empty()) {
    *most = NO_MAXIMUM;
    *power = 0.0f;
    return;
  }
  const Lanes low = page_score_of(Lanes::load(scores), soft_cap), high = page_score_of(Lanes::load(scores + 16), soft_cap);
  *most = largest_lane(larger(within(low, 0, seen, Lanes(NO_MAXIMUM)), within(high, 16, seen, Lanes(NO_MAXIMUM))));
  const Lanes maximum(*most);
  *power = sum_lanes(within(power_of<0>(low - maximum), 0, seen, Lanes(0.0f)) +
                     within(power_of<0>(high - maximum), 16, seen, Lanes(0.0f)));
}

// Shares of `rows` rows, from what each gives to its pages, to the mass of the pages.
inline void add_shares(const MassParams &p, const SeenPages &seen, int rows) {
  float *const maxima = p.powers, *const powers = p.powers + MASS_ROWS * p.stride;
  const int count = (seen.end - seen.base + 15) / 16 * 16;
  float maximum[MASS_ROWS], totals[MASS_ROWS];
  for (int r = 0; r < rows; ++r) {
    const float *most = maxima + r * p.stride, *power = powers + r * p.stride;
    Lanes largest(NO_MAXIMUM), total(0.0f);
    for (int i = 0; i < count; i += 16) largest = larger(largest, Lanes::load(most + i));
    maximum[r] = largest_lane(largest);
    for (int i = 0; i < count; i += 16) {
      total = fused(Lanes::load(power + i), power_of<0>(Lanes::load(most + i) - Lanes(maximum[r])), total);
    }
    totals[r] = sum_lanes(total);
  }
  for (int i = 0; i < count; i += 16) {
    Lanes shares(0.0f);
    for (int r = 0; r < rows; ++r) {
      const Lanes factor = power_of<0>(Lanes::load(maxima + r * p.stride + i) - Lanes(maximum[r]));
      shares = shares + share_of(Lanes::load(powers + r * p.stride + i), factor, Lanes(totals[r]));
    }
    float found[16];
    shares.store(found);
    for (int lane = 0; lane < 16; ++lane) {
      const int page = seen.base + i + lane;
      if (page >= seen.begin && page < seen.end) __atomic_fetch_add(p.mass + page, mass_of(found[lane]), __ATOMIC_RELAXED);
    }
  }
}

void weigh_pages_lanes(const MassParams &p) {
  const AttendParams &task = p.rows;
  const int dim = task.pages.head_dim, all = (task.token_end - task.token_begin) * heads_a_token(task);
  const SeenPages seen = pages_of_rows(task);
  float *const panel = task.scratch;
  for (int first = 0; first < all; first += MASS_ROWS) {
    const int rows = all - first < MASS_ROWS ? all - first : MASS_ROWS;
    for (int r = 0; r < rows; ++r) {  // pages around those that are seen, to multiples of 16
      for (int i = 0; i < seen.begin - seen.base; ++i) p.powers[r * p.stride + i] = NO_MAXIMUM;
      for (int i = seen.end - seen.base; i % 16; ++i) p.powers[r * p.stride + i] = NO_MAXIMUM;
      for (int i = 0; i < seen.begin - seen.base; ++i) p.powers[(MASS_ROWS + r) * p.stride + i] = 0.0f;
      for (int i = seen.end - seen.base; i % 16; ++i) p.powers[(MASS_ROWS + r) * p.stride + i] = 0.0f;
    }
    for (int page = seen.begin; page < seen.end; ++page) {
      fill_floats(part_of(task.pages, task.seq, page, 0, task.kv_head), dim, panel);
      for (int begin = 0; begin < rows; begin += MASS_TILE) {
        const float *queries[MASS_TILE];
        float scores[MASS_TILE * PAGE_TOKENS];
        for (int r = 0; r < MASS_TILE; ++r) {  // behind the last row it again
          queries[r] = query_of_row(task, first + (begin + r < rows ? begin + r : rows - 1));
        }
        multiply_floats(queries, panel, dim, scores);
        for (int r = 0; r < MASS_TILE && begin + r < rows; ++r) {
          const Range visible = visible_of_page(position_of_row(task, first + begin + r), task.window, page);
          float *to = p.powers + (begin + r) * p.stride + page - seen.base;
          weigh_page(scores + r * PAGE_TOKENS, task.soft_cap, visible, to, to + MASS_ROWS * p.stride);
        }
      }
    }
    add_shares(p, seen, rows);
  }
}

}  // namespace
}  // namespace edge
