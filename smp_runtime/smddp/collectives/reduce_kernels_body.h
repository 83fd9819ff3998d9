// SPDX-License-Identifier: Apache-2.0
// The loops of reduce(), compiled once for every x86-64 and once for AVX2 with F16C.
//
// Included by exactly these two files. Everything has internal linkage and nothing of the standard
// library is instantiated: a template that both files share could otherwise end up with AVX2
// instructions in a program that runs without. Loops are plain, for the compiler to vectorize; it
// may not reorder additions (no -ffast-math), so both builds give equal bits.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "smp_runtime/core/element_type.h"
#include "smp_runtime/smddp/collectives/reduce_kernels.h"

namespace smp::collectives {
namespace {

constexpr size_t kBlock = 1024;  // accumulators of a block stay in the first-level cache

struct Float16 {
  using Stored = uint16_t;
  using Sum = float;
};
struct BFloat16 {
  using Stored = uint16_t;
  using Sum = float;
};
struct Truth {
  using Stored = uint8_t;
  using Sum = uint8_t;
};
template <typename T>
struct Plain {
  using Stored = T;
  using Sum = T;
};
__extension__ using Int128 = __int128;
/// An integer that is averaged: the sum of any number of ranks' has room.
template <typename T>
struct Averaged {
  using Stored = T;
  using Sum = int64_t;
};
template <>
struct Averaged<int64_t> {
  using Stored = int64_t;
  using Sum = Int128;
};

template <typename T>
void load(const T* from, T* to, size_t count, Plain<T>) {
  std::memcpy(to, from, count * sizeof(T));
}

template <typename T>
void store(const T* from, T* to, size_t count, Plain<T>) {
  std::memcpy(to, from, count * sizeof(T));
}

template <typename T>
void load(const T* from, typename Averaged<T>::Sum* to, size_t count, Averaged<T>) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i];
}

template <typename T>
void store(const typename Averaged<T>::Sum* from, T* to, size_t count, Averaged<T>) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
}

void load(const uint8_t* from, uint8_t* to, size_t count, Truth) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i] != 0;
}

void store(const uint8_t* from, uint8_t* to, size_t count, Truth) { std::memcpy(to, from, count); }

void load(const uint16_t* from, float* to, size_t count, BFloat16) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, sizeof(bits));
  }
}

void store(const float* from, uint16_t* to, size_t count, BFloat16) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, from + i, sizeof(bits));
    // Round to nearest, ties to even; a NaN must not round up to infinity.
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    to[i] = static_cast<uint16_t>(is_nan ? 0x7fc0U : rounded);
  }
}

void load(const uint16_t* from, float* to, size_t count, Float16) {
  size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
#endif
  for (; i < count; ++i) {
    _Float16 value = 0;
    std::memcpy(&value, from + i, sizeof(value));
    to[i] = static_cast<float>(value);
  }
}

void store(const float* from, uint16_t* to, size_t count, Float16) {
  size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < count; ++i) {
    const auto value = static_cast<_Float16>(from[i]);
    std::memcpy(to + i, &value, sizeof(value));
  }
}

// Integers are added and multiplied as unsigned ones of 64 bits, which may wrap.
template <typename T>
T add(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline Int128 add(Int128 a, Int128 b) { return a + b; }
inline float add(float a, float b) { return a + b; }
inline double add(double a, double b) { return a + b; }

template <typename T>
T multiply(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
inline float multiply(float a, float b) { return a * b; }
inline double multiply(double a, double b) { return a * b; }

template <typename T>
T divide(T a, int divisor) {
  return static_cast<T>(a / divisor);
}
inline Int128 divide(Int128 a, int divisor) {
  const auto narrow = static_cast<int64_t>(a);  // which is several times faster to divide
  return narrow == a ? narrow / divisor : a / divisor;
}
inline float divide(float a, int divisor) { return a / static_cast<float>(divisor); }

struct Add {
  template <typename T>
  static T apply(T a, T b) {
    return add(a, b);
  }
};
struct Multiply {
  template <typename T>
  static T apply(T a, T b) {
    return multiply(a, b);
  }
};
// A NaN wins on either side: as `a` it compares false, as `b` it differs from itself. Bits are or'd
// so that there is no branch to vectorize.
struct Min {
  template <typename T>
  static T apply(T a, T b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return ((a < b) | (b != b)) ? b : a;
  }
};
struct BitAnd {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <typename From, typename Op, typename To = From>
void reduce_as(const Arrays& arrays) {
  using Stored = typename From::Stored;
  using Sum = typename From::Sum;
  Sum sum[kBlock];
  Sum next[kBlock];
  for (size_t start = 0; start < arrays.count; start += kBlock) {
    const size_t count = arrays.count - start < kBlock ? arrays.count - start : kBlock;
    load(reinterpret_cast<const Stored*>(arrays.sources[0]) + start, sum, count, From{});
    for (size_t source = 1; source < arrays.source_count; ++source) {
      load(reinterpret_cast<const Stored*>(arrays.sources[source]) + start, next, count, From{});
      for (size_t i = 0; i < count; ++i) sum[i] = Op::apply(sum[i], next[i]);
    }
    if (arrays.divisor != 1) {
      for (size_t i = 0; i < count; ++i) sum[i] = divide(sum[i], arrays.divisor);
    }
    store(sum, reinterpret_cast<typename To::Stored*>(arrays.destination) + start, count, To{});
  }
}

/// Parts have the type of the accumulators.
template <typename Type>
void average_as(const Arrays& arrays) {
  using Part = Plain<typename Type::Sum>;
  switch (arrays.stage) {
    case Stage::kWhole:
      return reduce_as<Type, Add>(arrays);
    case Stage::kPart:
      return reduce_as<Type, Add, Part>(arrays);
    case Stage::kParts:
      return reduce_as<Part, Add, Type>(arrays);
  }
}

template <typename Type>
void reduce_numbers(ReduceOp op, const Arrays& arrays) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:  // in which nothing is wider than its type
      return reduce_as<Type, Add>(arrays);
    case ReduceOp::kProduct:
      return reduce_as<Type, Multiply>(arrays);
    case ReduceOp::kMin:
      return reduce_as<Type, Min>(arrays);
    case ReduceOp::kMax:
      return reduce_as<Type, Max>(arrays);
    default:
      return;  // check_reducible refuses bits of floats
  }
}

template <typename Type>
void reduce_integers(ReduceOp op, const Arrays& arrays) {
  switch (op) {
    case ReduceOp::kAverage:
      return average_as<Averaged<typename Type::Stored>>(arrays);
    case ReduceOp::kBitAnd:
      return reduce_as<Type, BitAnd>(arrays);
    case ReduceOp::kBitOr:
      return reduce_as<Type, BitOr>(arrays);
    case ReduceOp::kBitXor:
      return reduce_as<Type, BitXor>(arrays);
    default:
      return reduce_numbers<Type>(op, arrays);
  }
}

void reduce_truths(ReduceOp op, const Arrays& arrays) {
  switch (op) {
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return reduce_as<Truth, BitAnd>(arrays);
    case ReduceOp::kBitXor:
      return reduce_as<Truth, BitXor>(arrays);
    default:
      return reduce_as<Truth, BitOr>(arrays);
  }
}

void reduce_any(ElementType type, ReduceOp op, const Arrays& arrays) {
  switch (type) {
    case ElementType::kFloat16:
      if (op == ReduceOp::kAverage) return average_as<Float16>(arrays);
      return reduce_numbers<Float16>(op, arrays);
    case ElementType::kBFloat16:
      return reduce_numbers<BFloat16>(op, arrays);
    case ElementType::kFloat32:
      return reduce_numbers<Plain<float>>(op, arrays);
    case ElementType::kFloat64:
      return reduce_numbers<Plain<double>>(op, arrays);
    case ElementType::kInt8:
      return reduce_integers<Plain<int8_t>>(op, arrays);
    case ElementType::kUint8:
      return reduce_integers<Plain<uint8_t>>(op, arrays);
    case ElementType::kInt16:
      return reduce_integers<Plain<int16_t>>(op, arrays);
    case ElementType::kInt32:
      return reduce_integers<Plain<int32_t>>(op, arrays);
    case ElementType::kInt64:
      return reduce_integers<Plain<int64_t>>(op, arrays);
    case ElementType::kBool:
      return reduce_truths(op, arrays);
    case ElementType::kBytes:
      return;
  }
}

}  // namespace
}  // namespace smp::collectives
