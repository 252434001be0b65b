// Kernels of the CPU engine: one params struct of pointers and strides each, one table of them per instruction set.
// Owns nothing, allocates nothing, knows no threads: a caller hands out ranges of strips, rows or tasks.
//
// Every kernel gives the same bits on every instruction set and for every split into ranges (DESIGN.md, batch-invariant):
// int32 sums per group then one fp32 fma a group, ascending; fp32 reductions over 16 fixed lanes (lane = index % 16)
// and one fixed tree; exp is the polynomial of math.h. The plain-loop twin of each is in plain.cpp.
#pragma once
#include "contract.h"

namespace edge {

// One matrix of a weight file (edge/contract.py, "weights").
struct Weight {
  const uint8_t *data;    // strip 0
  int64_t strip_bytes;    // from one strip to the next
  int64_t scales_offset;  // from a strip's start to its scales, bytes
  int64_t minima_offset;  // from a strip's start to its minima, bytes; 0: none
  int32_t kind;           // WeightKind
  int32_t outputs;        // N, without padding
  int32_t inputs;         // K, padded to STEP
  int32_t group;          // inputs a scale: 16 or 32
};

// 32 inputs of an activation row, quantised to int8: x = scale * q. All that a product wants of them is one cache line: one
// pointer a row (four arrays had a tile's addresses on the stack), every sum in the form in which it is broadcast.
struct alignas(64) RowStep {
  int8_t quants[STEP];
  float scale;       // largest magnitude / 127
  float sums[2];     // scale * (sum of 16 quants): for minima of group 16
  float sum;         // sums[0] + sums[1]: for minima of group 32
  int32_t zeros[2];  // -8 * (sum of 16 quants): the zero point of int4 without minima, group 16; 16 times it is that of int8
  int32_t zero;      // zeros[0] + zeros[1]: group 32
  int32_t unused;
};
static_assert(sizeof(RowStep) == 64);

// Activation rows, written by norm.
struct Rows {
  RowStep *steps;  // [rows][inputs / 32]
  int32_t inputs;  // padded to STEP; quants behind the real width are 0
};

struct NormParams {     // rows [row_begin, row_end) of x: y = x / sqrt(mean(x^2) + epsilon) * weight
  const float *x;       // [rows][stride]
  int64_t stride;       // floats
  const float *weight;  // [width]; null: y = x
  int32_t width;
  float epsilon;
  const Rows *quantised;  // where to put int8 rows; null: not wanted
  float *plain;           // where to put fp32 rows [rows][plain_stride], zero behind width; null: not wanted
  int64_t plain_stride;
  int32_t row_begin, row_end;
};

// What a thread will read once a kernel is done: as many bytes from each of `count` places. A product fetches it ahead where it
// has nothing more of its own to fetch, so that memory does not rest while threads meet.
struct Upcoming {
  const uint8_t *at[2];
  int32_t count;  // 0: nothing
  int64_t bytes;
};

struct MatmulParams {  // y[row][output] for rows [row_begin, row_end) and strips [strip_begin, strip_end)
  const Weight *weight;
  const Rows *quantised;  // int4 and int8 weights
  const float *plain;     // fp16 weights: fp32 rows [rows][plain_stride]
  int64_t plain_stride;
  float *y;  // [rows][y_stride]; outputs behind weight->outputs are not written
  int64_t y_stride;
  int32_t add;  // 1: y += result, 0: y = result
  int32_t row_begin, row_end, strip_begin, strip_end;
  Upcoming upcoming;
};

struct GatedParams {  // y = activation(gate) * up, for rows and strips as above; gate and up have equal shapes, kinds may
                      // differ
  const Weight *gate, *up;
  const Rows *quantised;
  const float *plain;
  int64_t plain_stride;
  float *y;
  int64_t y_stride;
  int32_t activation;  // Activation
  int32_t row_begin, row_end, strip_begin, strip_end;
  Upcoming upcoming;
};

struct AddNormParams {  // h += rms_norm(x) * weight, rows [row_begin, row_end)
  const float *x;
  int64_t x_stride;
  float *h;
  int64_t h_stride;
  const float *weight;
  int32_t width;
  float epsilon;
  int32_t row_begin, row_end;
};

struct EmbedParams {  // y[row] = scale * table[tokens[row]], rows [row_begin, row_end)
  const Weight *table;
  const int32_t *tokens;
  float scale;
  float *y;
  int64_t y_stride;
  int32_t row_begin, row_end;
};

// Shape and place of one layer's K and V in the pool. Extents are [layers of the group][...] (contract.py, "pages").
struct LayerPages {
  uint8_t *pool;
  const int32_t *page_table;  // [num_seqs][max_pages][2] of this layer group
  int32_t max_pages;
  int32_t group_layer;
  int32_t num_heads, num_kv_heads, head_dim;
};

struct MoveParams {                      // one layer's part of a page move (contract.py, "page moves")
  const uint8_t *source;                 // [Hkv] parts of the source's format
  uint8_t *target;                       // [Hkv] parts of the target's
  int32_t side;                          // 0 K, 1 V
  int32_t source_format, target_format;  // PageFormat; MOVE_TARGETS says which pairs there are
  int32_t num_kv_heads, head_dim;
};

// Rows [row_begin, row_end), kv heads [kv_head_begin, kv_head_end) and the query heads that read them: q normed, rotated,
// scaled; k normed and rotated, and v, into their pages.
struct RotaryParams {
  LayerPages pages;
  const float *qkv;  // [T][(Hq + 2 Hkv) * D]
  int64_t qkv_stride;
  float *queries;  // [T][queries_stride], where q goes; may be qkv itself
  int64_t queries_stride;
  const int32_t *row_seq;  // [T] sequence of each row
  const int32_t *row_pos;  // [T] absolute position of each row
  const float *cosines;    // [T][D / 2]
  const float *sines;
  const float *q_norm, *k_norm;  // [D] or null
  float epsilon, scale;
  int32_t row_begin, row_end, kv_head_begin, kv_head_end;
  int32_t append;  // 0: q alone, the pages stay as they are
};

// Attention of a run of rows of one sequence and one kv head over blocks of BLOCK_TOKENS positions.
// The query rows of a task are (token, head in group) pairs: token major, num_heads / num_kv_heads heads each.
// Per block and row: m = max score in units of log 2, p = 2^(score - m + 16), l = sum p, o = sum p v, with q, K, V and p as
// integers (attention.h); blocks are merged in ascending order.
struct AttendParams {
  LayerPages pages;
  const float *qkv;  // rotated rows
  int64_t qkv_stride;
  float *out;  // [T][Hq * D]
  int64_t out_stride;
  const int32_t *row_pos;  // [T]
  int32_t seq;             // index into the page table
  int32_t kv_head;
  int32_t token_begin, token_end;  // rows of qkv, all of sequence `seq`, positions ascending by one
  int32_t window;                  // 0: all
  float soft_cap;                  // 0: none
  int32_t block_begin, block_end;  // blocks to take; a block that a row does not see at all is skipped for it
  // Partials, for splitting one row's blocks over tasks: null: merge here and write `out`.
  // Else [blocks of the task][rows of the task][2 + D]: m, l, o per row; m = -inf where the row sees nothing of the block.
  float *partials;
  float *scratch;  // attend_scratch_floats(head_dim) floats, one a thread
};

struct MergeParams {      // merges partials of blocks [0, blocks) in ascending order into out
  const float *partials;  // [blocks][rows][2 + D]
  int32_t blocks;
  int32_t head_dim, num_heads, num_kv_heads, kv_head;
  float *out;
  int64_t out_stride;
  int32_t token_begin, token_end;
};

// What some query heads of one row and kv head may give to pages of sealed K, from the pages' minima and scales alone
// (attention.h, reach_of); nothing else of the pages is read.
struct PageScoreParams {
  LayerPages pages;
  const float *queries;  // [heads][D], rotated
  int32_t heads, seq, kv_head;
  int32_t page_begin, page_end;
  float *scores;   // [heads][stride], by page; of an fp16 page -inf
  int64_t stride;  // a multiple of 16
};
struct RankParams {  // pages by what they may weigh: softmax over pages, summed over heads
  float *scores;     // [heads][stride], as above; overwritten. That of page 0, which is read anyway, is not looked at
  int64_t stride;
  int32_t heads, pages;
  float soft_cap;
  float *ranks;  // [stride]
};

// What the rows of a task give to the pages that they see (attention.h, "mass"): shares of each row's softmax in units of
// 1 / MASS_STEPS, added to `mass`. Threads add to one row of pages at once.
struct MassParams {
  AttendParams rows;  // whose; blocks, partials and outputs are not looked at
  float *powers;      // [2][MASS_ROWS][stride]
  int64_t stride;     // pages of the longest context, to a multiple of 16
  int64_t *mass;      // [max_pages] of the sequence
};
constexpr int MASS_ROWS = 32;  // rows for which a page of K is unpacked once

struct Kernels {
  const char *name;  // plain; avx2, avx512vnni, amx; neon, neon-dotprod, neon-i8mm
  void (*norm)(const NormParams &);
  void (*matmul)(const MatmulParams &);
  void (*gated)(const GatedParams &);
  void (*add_norm)(const AddNormParams &);
  void (*embed)(const EmbedParams &);
  void (*move)(const MoveParams &);
  void (*rotary)(const RotaryParams &);
  void (*attend)(const AttendParams &);
  void (*merge)(const MergeParams &);
  void (*score_pages)(const PageScoreParams &);
  void (*rank)(const RankParams &);
  void (*weigh_pages)(const MassParams &);
  void (*soft_cap)(float *x, int64_t count, float cap);  // x = cap * tanh(x / cap)
};

int64_t attend_scratch_floats(int32_t head_dim);

constexpr int MAX_TABLES = 4;
const Kernels *plain_kernels();
// Those that work here, slowest first, the plain loops before all; returns how many. Instruction sets are probed once.
int list_kernels(const Kernels *tables[MAX_TABLES]);
const Kernels *find_kernels(const char *name);  // by name; "" or "auto": the best that works here; null: unknown or not here

}  // namespace edge
