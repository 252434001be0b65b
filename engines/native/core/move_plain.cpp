// Page moves as plain loops: the twin that the other instruction sets are compared with.
#include "move.h"
#include "tables.h"

namespace edge::plain {
namespace {

static_assert([] {
  for (const PartSample &sample : PART_SAMPLES) {
    const bool held = can_hold(sample.side, sample.format, sample.head_dim);
    if (held != (sample.bytes > 0)) return false;
    if (held && sample.format != PageFormat::fp16) {
      const SealedPart part(sample.side, sample.format, sample.head_dim);
      if (part.bits != FORMAT_BITS[sample.format] || part.group() != VALUE_GROUPS[sample.format]) return false;
    }
    if (held && part_bytes(sample.side, sample.format, sample.head_dim) != sample.bytes) return false;
  }
  return true;
}());  // as edge/contract.py says

// A part to read from, in any format.
struct Source {
  const uint8_t *bytes;
  int side, format, dim;

  uint16_t half(int64_t offset) const {
    uint16_t half;
    memcpy(&half, bytes + offset, 2);
    return half;
  }
  int value(int token, int channel) const {
    const SealedPart part(side, format, dim);
    uint32_t word;
    memcpy(&word, bytes + part.word_of(token, channel) * 4, 4);
    return int(word >> part.shift_of(token, channel) & ((1u << part.bits) - 1));
  }
  uint16_t scale(int token, int channel) const {
    const SealedPart part(side, format, dim);
    return half(part.scales_offset() + part.scale_of(token, channel) * 2);
  }
  uint16_t minimum(int token, int channel) const {
    const SealedPart part(side, format, dim);
    return half(part.minima_offset() + part.scale_of(token, channel) * 2);
  }
  float at(int token, int channel) const {
    if (format == PageFormat::fp16) {
      return half_to_float(half((is_key(side) ? channel * PAGE_TOKENS + token : token * dim + channel) * 2));
    }
    const float scale_here = half_to_float(scale(token, channel)), minimum_here = half_to_float(minimum(token, channel));
    return fused(scale_here, float(value(token, channel)), minimum_here);
  }
};

class Target {
 public:
  Target(uint8_t *bytes, int side, int format, int dim) : bytes_(bytes), part_(side, format, dim) {
    memset(bytes, 0, size_t(part_bytes(side, format, dim)));
  }
  void put_scale(int token, int channel, Quantiser by) const {
    memcpy(bytes_ + part_.scales_offset() + part_.scale_of(token, channel) * 2, &by.scale, 2);
    memcpy(bytes_ + part_.minima_offset() + part_.scale_of(token, channel) * 2, &by.minimum, 2);
  }
  void put(int token, int channel, int value) const {
    uint32_t word;
    memcpy(&word, bytes_ + part_.word_of(token, channel) * 4, 4);
    word |= uint32_t(value) << part_.shift_of(token, channel);
    memcpy(bytes_ + part_.word_of(token, channel) * 4, &word, 4);
  }
  // Numbers that share a scale: tokens [token, token_end) of channels [channel, channel_end).
  void quantise(const Source &from, int token, int token_end, int channel, int channel_end) const {
    float low = from.at(token, channel), high = low;
    for (int t = token; t < token_end; ++t) {
      for (int d = channel; d < channel_end; ++d) {
        low = smaller(from.at(t, d), low);
        high = larger(from.at(t, d), high);
      }
    }
    const Quantiser by = quantiser_of(low, high, part_.bits);
    put_scale(token, channel, by);
    if (by.scale == 0) return;
    const float scale = half_to_float(by.scale), minimum = half_to_float(by.minimum), steps = float((1 << part_.bits) - 1);
    for (int t = token; t < token_end; ++t) {
      for (int d = channel; d < channel_end; ++d) {
        put(t, d, int(bits_of(value_of(from.at(t, d), scale, minimum, steps)) & ((1u << part_.bits) - 1)));
      }
    }
  }
  void quantise_all(const Source &from) const {
    const int dim = part_.head_dim;
    for (int channel = 0; is_key(part_.side) && channel < dim; ++channel) {
      quantise(from, 0, PAGE_TOKENS, channel, channel + 1);
    }
    for (int token = 0; !is_key(part_.side) && token < PAGE_TOKENS; ++token) {
      for (int channel = 0; channel < dim; channel += part_.group()) {
        quantise(from, token, token + 1, channel, channel + part_.group() < dim ? channel + part_.group() : dim);
      }
    }
  }
  void take_high_nibbles(const Source &from) const {
    for (int channel = 0; channel < part_.head_dim; ++channel) {
      const uint16_t scale = from.scale(0, channel), minimum = from.minimum(0, channel);
      put_scale(0, channel, {high_nibble_scale(scale), high_nibble_minimum(scale, minimum)});
      for (int token = 0; token < PAGE_TOKENS; ++token) put(token, channel, from.value(token, channel) >> 4);
    }
  }

 private:
  uint8_t *bytes_;
  SealedPart part_;
};

}  // namespace

void move(const MoveParams &p) {
  const int64_t source_bytes = part_bytes(p.side, p.source_format, p.head_dim);
  const int64_t target_bytes = part_bytes(p.side, p.target_format, p.head_dim);
  for (int head = 0; head < p.num_kv_heads; ++head) {
    const uint8_t *source = p.source + head * source_bytes;
    uint8_t *target = p.target + head * target_bytes;
    if (p.source_format == p.target_format) {
      memmove(target, source, size_t(source_bytes));  // whoever wrote the move may have let its extents overlap
      continue;
    }
    const Source from{source, p.side, p.source_format, p.head_dim};
    const Target to(target, p.side, p.target_format, p.head_dim);
    is_key(p.side) && p.source_format == PageFormat::int8 ? to.take_high_nibbles(from) : to.quantise_all(from);
  }
}

}  // namespace edge::plain
