// Names of every kernel of every instruction set, for the tables in kernels.cpp. One namespace each; files of a namespace are
// built with its flags (x86: avx2 with -mavx2 -mfma -mf16c; avx512vnni and amx with -mavx512f/bw/vl/dq/vnni -mfma -mf16c).
#pragma once
#include "kernels.h"

namespace edge {

namespace plain {
void norm(const NormParams &);
void matmul(const MatmulParams &);
void gated(const GatedParams &);
void add_norm(const AddNormParams &);
void embed(const EmbedParams &);
void move(const MoveParams &);
void rotary(const RotaryParams &);
void attend(const AttendParams &);
void merge(const MergeParams &);
void score_pages(const PageScoreParams &);
void rank(const RankParams &);
void weigh_pages(const MassParams &);
void soft_cap(float *x, int64_t count, float cap);
}  // namespace plain

namespace avx2 {
void norm(const NormParams &);
void matmul(const MatmulParams &);
void gated(const GatedParams &);
void add_norm(const AddNormParams &);
void embed(const EmbedParams &);
void move(const MoveParams &);
void rotary(const RotaryParams &);
void attend(const AttendParams &);
void merge(const MergeParams &);
void score_pages(const PageScoreParams &);
void rank(const RankParams &);
void weigh_pages(const MassParams &);
void soft_cap(float *x, int64_t count, float cap);
}  // namespace avx2

namespace avx512vnni {
void norm(const NormParams &);
void matmul(const MatmulParams &);
void gated(const GatedParams &);
void add_norm(const AddNormParams &);
void embed(const EmbedParams &);
void move(const MoveParams &);
void rotary(const RotaryParams &);
void attend(const AttendParams &);
void merge(const MergeParams &);
void score_pages(const PageScoreParams &);
void rank(const RankParams &);
void weigh_pages(const MassParams &);
void soft_cap(float *x, int64_t count, float cap);
}  // namespace avx512vnni

namespace amx {  // the rest of its table is avx512vnni's
void matmul(const MatmulParams &);
void gated(const GatedParams &);
}  // namespace amx

// On aarch64 the sets differ in the matrix products alone.
namespace neon {
void norm(const NormParams &);
void matmul(const MatmulParams &);
void gated(const GatedParams &);
void add_norm(const AddNormParams &);
void embed(const EmbedParams &);
void move(const MoveParams &);
void rotary(const RotaryParams &);
void attend(const AttendParams &);
void merge(const MergeParams &);
void score_pages(const PageScoreParams &);
void rank(const RankParams &);
void weigh_pages(const MassParams &);
void soft_cap(float *x, int64_t count, float cap);
}  // namespace neon

namespace neon_dotprod {
void matmul(const MatmulParams &);
void gated(const GatedParams &);
}  // namespace neon_dotprod

namespace neon_i8mm {
void matmul(const MatmulParams &);
void gated(const GatedParams &);
}  // namespace neon_i8mm

}  // namespace edge
