// Matrix products of many rows on AMX tiles; everything else is AVX-512's. Few rows stay with VNNI, whose bits are the same.
#include "lanes_avx512.h"
// behind lanes_*.h
#include "amx_product.h"
#include "tables.h"

namespace edge {
namespace {

inline Lanes load_ints(const int32_t *x) { return Lanes(_mm512_cvtepi32_ps(_mm512_loadu_si512(x))); }

}  // namespace

namespace amx {

void matmul(const MatmulParams &p) {
  MatmulParams rest = p;
  rest.row_begin += matmul_tiles<AmxTiles>(p);
  if (rest.row_begin < rest.row_end) avx512vnni::matmul(rest);
}

void gated(const GatedParams &p) {
  GatedParams rest = p;
  rest.row_begin += gated_tiles<AmxTiles>(p);
  if (rest.row_begin < rest.row_end) avx512vnni::gated(rest);
}

}  // namespace amx
}  // namespace edge
