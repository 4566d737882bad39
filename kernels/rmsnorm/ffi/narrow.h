// Floating-point types of 16 bits for the CPU: stored in 16, converted to float32 for all arithmetic.
// The conversions round to the nearest, ties to even. They choose between values and do not branch,
// so that loops vectorise, and meet no subnormal float32, which XLA's threads take for zero.
#ifndef NARROW_H_
#define NARROW_H_

#include <cstdint>
#include <cstring>

namespace rms_norm {

template <typename To, typename From>
inline To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// bfloat16: the upper half of a float32.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  explicit BFloat16(float v) {
    const uint32_t wide = BitCast<uint32_t>(v);
    const uint32_t rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
    const uint32_t nan = (wide >> 16) | 0x40;  // the upper half alone may be an infinity
    bits = static_cast<uint16_t>((wide & 0x7fffffff) > 0x7f800000 ? nan : rounded);
  }
  explicit operator float() const { return BitCast<float>(static_cast<uint32_t>(bits) << 16); }
};

// float16: a sign, 5 bits of exponent with a bias of 15, 10 bits of fraction.
struct PortableFloat16 {
  uint16_t bits;

  PortableFloat16() = default;
  explicit PortableFloat16(float v) {
    const uint32_t wide = BitCast<uint32_t>(v), size = wide & 0x7fffffff;
    // The exponent's bias changes by 127 - 15, and 13 bits of fraction are rounded away. A carry
    // goes into the exponent, and from the largest number to infinity.
    const uint32_t normal = (size - (112u << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
    // Below 2^-14 numbers are 2^-24 apart, as float32 numbers are from 0.5 on: the sum rounds.
    const uint32_t small = BitCast<uint32_t>(BitCast<float>(size) + 0.5f) - 0x3f000000;
    uint32_t narrow = size < 0x38800000 ? small : normal;
    narrow = size >= 0x47800000 ? 0x7c00 : narrow;  // from 2^16 on
    narrow = size > 0x7f800000 ? 0x7e00 : narrow;   // NaN
    bits = static_cast<uint16_t>(narrow | ((wide >> 16) & 0x8000));
  }
  explicit operator float() const {
    const uint32_t size = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
    const uint32_t normal = size + (112u << 23);
    const uint32_t small = BitCast<uint32_t>(BitCast<float>(size + (113u << 23)) - 0x1p-14f);
    uint32_t wide = size < (1u << 23) ? small : normal;
    wide = size >= (31u << 23) ? size + (224u << 23) : wide;  // infinity and NaN
    return BitCast<float>(wide | sign);
  }
};

// The compiler's own, where it has one (on x86 GCC from 12 on): converted by an instruction, where the
// processor has one.
#ifdef __FLT16_MANT_DIG__
using Float16 = _Float16;
#else
using Float16 = PortableFloat16;
#endif

}  // namespace rms_norm

#endif  // NARROW_H_
