// SPDX-License-Identifier: Apache-2.0
// The arithmetic of fused_blocks.h as a GPU's block does it. Without Torch; runs on the CPU, too.
//
// 16-bit numbers are widened when they are read and rounded once, when they are written.
#pragma once

#include <cmath>
#include <cstdint>

#include "smp_runtime/cuda/lanes.h"
#include "smp_runtime/cuda/launch.h"

namespace smp::tensor_parallel {

// --- Softmax ---

/// Scores [batch, heads, queries, keys] without gaps, and a bias that is laid over them.
struct SoftmaxShape {
  std::int64_t rows = 0;  ///< batch * heads * queries
  std::int64_t heads = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  bool causal = false;
  std::int64_t window = INT64_MAX;    ///< of causal: how many keys a query sees at most
  std::int64_t bias_strides[4] = {};  ///< by dim, 0 where the bias is repeated
};

struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;  ///< begin or less: none
};

/// The keys that a query sees. The last query sees the last key.
SMP_ON_BOTH inline KeyRange visible_keys(const SoftmaxShape& shape, std::int64_t query) {
  if (!shape.causal) return {0, shape.keys};
  const std::int64_t end = query + shape.keys - shape.queries + 1;
  return {end > shape.window ? end - shape.window : 0, end};
}

/// `bias` may be null.
template <typename T, typename Lanes>
SMP_ON_BOTH void softmax_row(const Lanes& lanes, const SoftmaxShape& shape, std::int64_t row,
                             const T* scores, const T* bias, T* result) {
  using W = cuda::Wide<T>;
  const std::int64_t query = row % shape.queries;
  const std::int64_t head = row / shape.queries % shape.heads;
  const std::int64_t batch = row / shape.queries / shape.heads;
  const KeyRange seen = visible_keys(shape, query);
  const T* const own = scores + row * shape.keys;
  const std::int64_t* const strides = shape.bias_strides;
  const T* const added = bias == nullptr
                             ? nullptr
                             : bias + batch * strides[0] + head * strides[1] + query * strides[2];
  const auto score = [&](std::int64_t key) {
    const W value = static_cast<W>(own[key]);
    return added == nullptr ? value : value + static_cast<W>(added[key * strides[3]]);
  };
  W top = -static_cast<W>(INFINITY);
  for (std::int64_t key = seen.begin + lanes.first(); key < seen.end; key += lanes.count()) {
    const W value = score(key);
    if (!(value <= top)) top = value;  // also what is no number
  }
  top = lanes.largest(top);
  W total = 0;
  for (std::int64_t key = seen.begin + lanes.first(); key < seen.end; key += lanes.count()) {
    total += std::exp(score(key) - top);
  }
  total = lanes.sum(total);
  if (seen.begin >= seen.end) total = static_cast<W>(NAN);  // as softmax where nothing counts
  for (std::int64_t key = lanes.first(); key < shape.keys; key += lanes.count()) {
    const bool visible = key >= seen.begin && key < seen.end;
    result[row * shape.keys + key] =
        static_cast<T>((visible ? std::exp(score(key) - top) : W(0)) / total);
  }
}

// --- GELU ---

enum class GeluKind : std::uint8_t { kErf, kTanh };

constexpr double kRootOfHalf = 0.70710678118654752440;
constexpr double kRootOfTwoOverPi = 0.79788456080286535588;
constexpr double kRootOfHalfOverPi = 0.39894228040143267794;
constexpr double kCube = 0.044715;

template <typename W>
SMP_ON_BOTH W gelu_of(GeluKind kind, W x) {
  if (kind == GeluKind::kErf) return W(0.5) * x * (1 + std::erf(x * W(kRootOfHalf)));
  return W(0.5) * x * (1 + std::tanh(W(kRootOfTwoOverPi) * (x + W(kCube) * x * x * x)));
}

template <typename W>
SMP_ON_BOTH W gelu_slope(GeluKind kind, W x) {
  if (kind == GeluKind::kErf) {
    return W(0.5) * (1 + std::erf(x * W(kRootOfHalf))) +
           x * W(kRootOfHalfOverPi) * std::exp(W(-0.5) * x * x);
  }
  const W bent = std::tanh(W(kRootOfTwoOverPi) * (x + W(kCube) * x * x * x));
  const W inner = W(kRootOfTwoOverPi) * (1 + 3 * W(kCube) * x * x);
  return W(0.5) * (1 + bent) + W(0.5) * x * (1 - bent * bent) * inner;
}

/// Elements [begin, end) of [.., width], with a bias [width].
template <typename T, typename Lanes>
SMP_ON_BOTH void bias_gelu_elements(const Lanes& lanes, GeluKind kind, std::int64_t begin,
                                    std::int64_t end, std::int64_t width, const T* input,
                                    const T* bias, T* result) {
  using W = cuda::Wide<T>;
  for (std::int64_t i = begin + lanes.first(); i < end; i += lanes.count()) {
    result[i] =
        static_cast<T>(gelu_of(kind, static_cast<W>(input[i]) + static_cast<W>(bias[i % width])));
  }
}

/// Its gradient with regard to the input.
template <typename T, typename Lanes>
SMP_ON_BOTH void bias_gelu_slopes(const Lanes& lanes, GeluKind kind, std::int64_t begin,
                                  std::int64_t end, std::int64_t width, const T* input,
                                  const T* bias, const T* gradient, T* back) {
  using W = cuda::Wide<T>;
  for (std::int64_t i = begin + lanes.first(); i < end; i += lanes.count()) {
    back[i] = static_cast<T>(
        static_cast<W>(gradient[i]) *
        gelu_slope(kind, static_cast<W>(input[i]) + static_cast<W>(bias[i % width])));
  }
}

// --- On a GPU; they throw HostError if the kernel does not start ---

void launch_softmax(cuda::NumberType type, const SoftmaxShape& shape, const void* scores,
                    const void* bias, void* result, cuda::Stream stream);
void launch_bias_gelu(cuda::NumberType type, GeluKind kind, std::int64_t elements,
                      std::int64_t width, const void* input, const void* bias, void* result,
                      cuda::Stream stream);
void launch_bias_gelu_slopes(cuda::NumberType type, GeluKind kind, std::int64_t elements,
                             std::int64_t width, const void* input, const void* bias,
                             const void* gradient, void* back, cuda::Stream stream);

}  // namespace smp::tensor_parallel
