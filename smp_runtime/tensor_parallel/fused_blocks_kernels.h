// SPDX-License-Identifier: Apache-2.0
// The arithmetic of fused_blocks.cc as a GPU's block does it. Without Torch; runs on the CPU, too.
//
// 16-bit numbers are widened when they are read and rounded once, when they are written.
#pragma once

#include <cmath>
#include <cstdint>

#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/pack.h"
#include "smp_runtime/cuda/quick_math.h"
#include "smp_runtime/cuda/softmax_sum.h"

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

/// `bias` may be null. Rows of `scores` and `result` are aligned for packs of N.
template <int N, typename T, typename Lanes>
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
  // Scores of the keys from `key` on, minus infinity for masked ones. Most packs are seen whole.
  const auto score = [&](std::int64_t key, const cuda::Pack<T, N>& pack, W(&values)[N]) {
    for (int j = 0; j < N; ++j) values[j] = static_cast<W>(pack.items[j]);
    if (added != nullptr) {
      for (int j = 0; j < N; ++j) values[j] += static_cast<W>(added[(key + j) * strides[3]]);
    }
    if (key >= seen.begin && key + N <= seen.end) return;
    for (int j = 0; j < N; ++j) {
      if (key + j < seen.begin || key + j >= seen.end) values[j] = -static_cast<W>(INFINITY);
    }
  };
  cuda::SoftmaxSum<T> sum;
  // Whole packs: what they hold beside the keys that are seen does not count.
  const std::int64_t first = seen.begin / N * N;
  cuda::each_pack<N>(lanes, seen.end - first, own + first, [&](std::int64_t i, const auto& pack) {
    W values[N];
    score(first + i, pack, values);
    sum.template add<N>(values);
  });
  sum.join(lanes);
  const W total = seen.begin >= seen.end ? static_cast<W>(NAN) : sum.total;  // as torch's softmax
  const W share = 1 / total;
  T* const own_result = result + row * shape.keys;
  cuda::each_pack<N>(lanes, shape.keys, own, [&](std::int64_t key, const auto& pack) {
    W values[N];
    score(key, pack, values);
    cuda::Pack<T, N> shares;
    for (int j = 0; j < N; ++j) {
      // Without any number but minus infinity, 0 / 0.
      shares.items[j] = static_cast<T>(cuda::exp_below_for<T>(values[j], sum.top) * share);
    }
    cuda::store<N>(own_result + key, shares);
  });
}

// --- GELU ---

enum class GeluKind : std::uint8_t { kErf, kTanh };

constexpr double kRootOfHalf = 0.70710678118654752440;
constexpr double kRootOfTwoOverPi = 0.79788456080286535588;
constexpr double kRootOfHalfOverPi = 0.39894228040143267794;
constexpr double kCube = 0.044715;

/// GELU of `x`, to be rounded to T.
template <GeluKind kKind, typename T>
SMP_ON_BOTH cuda::Wide<T> gelu_of(cuda::Wide<T> x) {
  using W = cuda::Wide<T>;
  if constexpr (kKind == GeluKind::kErf) {
    return W(0.5) * x * (1 + std::erf(x * W(kRootOfHalf)));
  } else {
    const W inner = W(kRootOfTwoOverPi) * (x + W(kCube) * x * x * x);
    return W(0.5) * x * (1 + cuda::tanh_for<T>(inner));
  }
}

/// The derivative of gelu.
template <GeluKind kKind, typename T>
SMP_ON_BOTH cuda::Wide<T> gelu_slope(cuda::Wide<T> x) {
  using W = cuda::Wide<T>;
  if constexpr (kKind == GeluKind::kErf) {
    return W(0.5) * (1 + std::erf(x * W(kRootOfHalf))) +
           x * W(kRootOfHalfOverPi) * cuda::exp_for<T>(W(-0.5) * x * x);
  } else {
    const W bent = cuda::tanh_for<T>(W(kRootOfTwoOverPi) * (x + W(kCube) * x * x * x));
    const W inner = W(kRootOfTwoOverPi) * (1 + 3 * W(kCube) * x * x);
    return W(0.5) * (1 + bent) + W(0.5) * x * (1 - bent * bent) * inner;
  }
}

/// A tile of [rows, width], with a bias [width]. All rows are aligned for packs of N.
template <GeluKind kKind, int N, typename T>
SMP_ON_BOTH void bias_gelu_tile(const cuda::Tile& tile, const T* input, const T* bias, T* result) {
  using W = cuda::Wide<T>;
  const cuda::Pack<T, N> added = cuda::load<N>(bias + tile.column);
  cuda::Pack<T, N> given[cuda::kAtOnce];
  for (int k = 0; k < cuda::kAtOnce; ++k) {
    if (tile.has(k)) given[k] = cuda::load<N>(input + tile.place(k));
  }
  for (int k = 0; k < cuda::kAtOnce; ++k) {
    if (!tile.has(k)) continue;
    for (int j = 0; j < N; ++j) {
      const W x = static_cast<W>(given[k].items[j]) + static_cast<W>(added.items[j]);
      given[k].items[j] = static_cast<T>(gelu_of<kKind, T>(x));
    }
    cuda::store<N>(result + tile.place(k), given[k]);
  }
}

/// The gradient of bias_gelu in a strip with regard to the input, and what the strip adds to that
/// of the bias's N numbers.
template <GeluKind kKind, int N, typename T>
SMP_ON_BOTH void bias_gelu_slopes_of_strip(const cuda::Strip& strip, const T* input, const T* bias,
                                           const T* gradient, T* back, cuda::Wide<T>* sums) {
  using W = cuda::Wide<T>;
  const cuda::Pack<T, N> added = cuda::load<N>(bias + strip.column);
  W own[N] = {};
  for (std::int64_t first = strip.begin; first < strip.end; first += cuda::kAtOnceInStrip) {
    cuda::Pack<T, N> given[cuda::kAtOnceInStrip];
    cuda::Pack<T, N> slopes[cuda::kAtOnceInStrip];
    for (int k = 0; k < cuda::kAtOnceInStrip; ++k) {
      if (!strip.has(first + k)) continue;
      given[k] = cuda::load<N>(input + strip.place(first + k));
      slopes[k] = cuda::load<N>(gradient + strip.place(first + k));
    }
    for (int k = 0; k < cuda::kAtOnceInStrip; ++k) {
      if (!strip.has(first + k)) continue;
      for (int j = 0; j < N; ++j) {
        const W x = static_cast<W>(given[k].items[j]) + static_cast<W>(added.items[j]);
        const W slope = static_cast<W>(slopes[k].items[j]) * gelu_slope<kKind, T>(x);
        own[j] += slope;
        slopes[k].items[j] = static_cast<T>(slope);
      }
      cuda::store<N>(back + strip.place(first + k), slopes[k]);
    }
  }
  for (int j = 0; j < N; ++j) sums[j] = own[j];
}

// --- On a GPU; they throw HostError if the kernel does not start ---

void launch_softmax(cuda::NumberType type, const SoftmaxShape& shape, const void* scores,
                    const void* bias, void* result, cuda::Stream stream);
void launch_bias_gelu(cuda::NumberType type, GeluKind kind, std::int64_t rows, std::int64_t width,
                      const void* input, const void* bias, void* result, cuda::Stream stream);
/// `parts` [strips, width]: of the gradient of the bias.
void launch_bias_gelu_slopes(cuda::NumberType type, GeluKind kind, std::int64_t rows,
                             std::int64_t width, std::int64_t strips, const void* input,
                             const void* bias, const void* gradient, void* back, void* parts,
                             cuda::Stream stream);

}  // namespace smp::tensor_parallel
