// SPDX-License-Identifier: Apache-2.0
// Kernels over the rows of a matrix, for sliced_layer_norm.cc and vocabulary_loss.cc, as a GPU's
// block runs them. Without Torch; runs on the CPU, too.
//
// Numbers made of a row are of the type Wide<T>. 16-bit numbers are widened when they are read and
// rounded once, when they are written.
#pragma once

#include <cmath>
#include <cstdint>

#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/pack.h"
#include "smp_runtime/cuda/quick_math.h"
#include "smp_runtime/cuda/softmax_sum.h"

namespace smp::tensor_parallel {

// --- Layer normalisation of rows [width], each aligned for packs of N ---

/// Moments of numbers that come a pack at a time, without cancellation (Chan, Golub and LeVeque,
/// Algorithms for computing the sample variance, 1983).
template <typename W>
struct RunningMoments {
  W count = 0;
  W mean = 0;
  W squares = 0;  ///< of what is left when the mean is taken away

  template <int N>
  SMP_ON_BOTH void add(const W (&values)[N]) {
    W sum = 0;
    for (int j = 0; j < N; ++j) sum += values[j];
    const W own = sum * (W(1) / N);
    W apart = 0;
    for (int j = 0; j < N; ++j) apart += (values[j] - own) * (values[j] - own);
    const W shift = own - mean;
    const W share = N / (count + N);
    mean += shift * share;
    squares += apart + shift * shift * count * share;
    count += N;
  }
};

/// moments[row] becomes {variance, mean}, in one reading.
template <int N, typename T, typename Lanes>
SMP_ON_BOTH void moments_of_row(const Lanes& lanes, std::int64_t row, std::int64_t width,
                                const T* input, cuda::Wide<T>* moments) {
  using W = cuda::Wide<T>;
  RunningMoments<W> own;
  cuda::each_pack<N>(lanes, width, input + row * width, [&](std::int64_t, const auto& pack) {
    W values[N];
    for (int j = 0; j < N; ++j) values[j] = static_cast<W>(pack.items[j]);
    own.template add<N>(values);
  });
  const W mean = lanes.sum(own.mean * own.count) / static_cast<W>(width);
  const W shift = own.mean - mean;
  const W squares = lanes.sum(own.squares + shift * shift * own.count);
  if (lanes.first() != 0) return;
  moments[2 * row] = squares / static_cast<W>(width);
  moments[2 * row + 1] = mean;
}

/// Operands of the normalisation of rows.
template <typename T>
struct NormalRows {
  std::int64_t width = 0;
  const T* input = nullptr;
  const T* weight = nullptr;             ///< [width]
  const cuda::Wide<T>* mean = nullptr;   ///< [rows]
  const cuda::Wide<T>* scale = nullptr;  ///< [rows]: one over the deviation
};

/// Normalises a tile. `weight` and `bias` have a number for each column.
template <int N, typename T>
SMP_ON_BOTH void normalise_tile(const cuda::Tile& tile, const NormalRows<T>& rows, const T* bias,
                                T* result) {
  using W = cuda::Wide<T>;
  const cuda::Pack<T, N> weights = cuda::load<N>(rows.weight + tile.column);
  const cuda::Pack<T, N> added = cuda::load<N>(bias + tile.column);
  cuda::Pack<T, N> given[cuda::kAtOnce];
  for (int k = 0; k < cuda::kAtOnce; ++k) {
    if (tile.has(k)) given[k] = cuda::load<N>(rows.input + tile.place(k));
  }
  for (int k = 0; k < cuda::kAtOnce; ++k) {
    if (!tile.has(k)) continue;
    const W mean = rows.mean[tile.row_at(k)];
    const W scale = rows.scale[tile.row_at(k)];
    for (int j = 0; j < N; ++j) {
      const W normal = (static_cast<W>(given[k].items[j]) - mean) * scale;
      given[k].items[j] = static_cast<T>(normal * static_cast<W>(weights.items[j]) +
                                         static_cast<W>(added.items[j]));
    }
    cuda::store<N>(result + tile.place(k), given[k]);
  }
}

/// sums[row] becomes {sum of g, sum of g times normal}, g the gradient times the weight.
template <int N, typename T, typename Lanes>
SMP_ON_BOTH void slope_sums_of_row(const Lanes& lanes, const NormalRows<T>& rows, std::int64_t row,
                                   const T* gradient, cuda::Wide<T>* sums) {
  using W = cuda::Wide<T>;
  const T* const own_input = rows.input + row * rows.width;
  const W mean = rows.mean[row];
  const W scale = rows.scale[row];
  W plain = 0;
  W along = 0;
  cuda::each_pack<N>(
      lanes, rows.width, gradient + row * rows.width, [&](std::int64_t i, const auto& slopes) {
        const cuda::Pack<T, N> given = cuda::load<N>(own_input + i);
        const cuda::Pack<T, N> weights = cuda::load<N>(rows.weight + i);
        for (int j = 0; j < N; ++j) {
          const W inner = static_cast<W>(slopes.items[j]) * static_cast<W>(weights.items[j]);
          plain += inner;
          along += inner * (static_cast<W>(given.items[j]) - mean);
        }
      });
  plain = lanes.sum(plain);
  along = lanes.sum(along) * scale;
  if (lanes.first() != 0) return;
  sums[2 * row] = plain;
  sums[2 * row + 1] = along;
}

/// The gradient of the input in a strip, from the means of those sums over whole rows, and what the
/// strip adds to those of the N numbers of weight and bias.
template <int N, typename T>
SMP_ON_BOTH void slopes_of_strip(const cuda::Strip& strip, const NormalRows<T>& rows,
                                 const T* gradient, const cuda::Wide<T>* means, T* back,
                                 cuda::Wide<T>* weight, cuda::Wide<T>* bias) {
  using W = cuda::Wide<T>;
  const cuda::Pack<T, N> weights = cuda::load<N>(rows.weight + strip.column);
  W own_weight[N] = {};
  W own_bias[N] = {};
  for (std::int64_t first = strip.begin; first < strip.end; first += cuda::kAtOnceInStrip) {
    cuda::Pack<T, N> given[cuda::kAtOnceInStrip];
    cuda::Pack<T, N> slopes[cuda::kAtOnceInStrip];
    for (int k = 0; k < cuda::kAtOnceInStrip; ++k) {
      if (!strip.has(first + k)) continue;
      given[k] = cuda::load<N>(rows.input + strip.place(first + k));
      slopes[k] = cuda::load<N>(gradient + strip.place(first + k));
    }
    for (int k = 0; k < cuda::kAtOnceInStrip; ++k) {
      const std::int64_t row = first + k;
      if (!strip.has(row)) continue;
      const W mean = rows.mean[row];
      const W scale = rows.scale[row];
      const W plain = means[2 * row];
      const W along = means[2 * row + 1];
      for (int j = 0; j < N; ++j) {
        const W slope = static_cast<W>(slopes[k].items[j]);
        const W normal = (static_cast<W>(given[k].items[j]) - mean) * scale;
        own_weight[j] += slope * normal;
        own_bias[j] += slope;
        const W inner = slope * static_cast<W>(weights.items[j]);
        slopes[k].items[j] = static_cast<T>((inner - plain - normal * along) * scale);
      }
      cuda::store<N>(back + strip.place(row), slopes[k]);
    }
  }
  for (int j = 0; j < N; ++j) {
    weight[j] = own_weight[j];
    bias[j] = own_bias[j];
  }
}

// --- Cross entropy of rows [words], each aligned for packs of N ---

/// parts[row] becomes {largest, sum of exponentials below it, score in `column` or 0}, in one
/// reading. `column` is the row's, and counts where `mine` says so.
template <int N, typename T, typename Lanes>
SMP_ON_BOTH void loss_parts_of_row(const Lanes& lanes, std::int64_t row, std::int64_t words,
                                   const T* scores, const std::int64_t* column, const bool* mine,
                                   cuda::Wide<T>* parts) {
  using W = cuda::Wide<T>;
  const T* const own = scores + row * words;
  cuda::SoftmaxSum<T> sum;
  cuda::each_pack<N>(lanes, words, own, [&](std::int64_t, const auto& pack) {
    W values[N];
    for (int j = 0; j < N; ++j) values[j] = static_cast<W>(pack.items[j]);
    sum.template add<N>(values);
  });
  sum.join(lanes);
  if (lanes.first() != 0) return;
  parts[3 * row] = sum.top;
  parts[3 * row + 1] = sum.total;
  parts[3 * row + 2] = mine[row] ? static_cast<W>(own[column[row]]) : W(0);
}

/// (exp(score - normaliser) - 1 in the row's column) * gradient.
template <int N, typename T, typename Lanes>
SMP_ON_BOTH void loss_slopes_of_row(const Lanes& lanes, std::int64_t row, std::int64_t words,
                                    const T* scores, const std::int64_t* column, const bool* mine,
                                    const cuda::Wide<T>* normaliser, const cuda::Wide<T>* gradient,
                                    T* back) {
  using W = cuda::Wide<T>;
  const W base = normaliser[row];
  const W factor = gradient[row];
  const std::int64_t right = mine[row] ? column[row] : -1;
  T* const own_back = back + row * words;
  cuda::each_pack<N>(lanes, words, scores + row * words, [&](std::int64_t i, const auto& pack) {
    const std::int64_t here = right - i;
    cuda::Pack<T, N> slopes;
    for (int j = 0; j < N; ++j) {
      const W share = cuda::exp_below_for<T>(static_cast<W>(pack.items[j]), base);
      slopes.items[j] = static_cast<T>((here == j ? share - 1 : share) * factor);
    }
    cuda::store<N>(own_back + i, slopes);
  });
}

// --- On a GPU; they throw HostError if the kernel does not start. Pointers as above. ---

/// NormalRows of any type.
struct AnyNormalRows {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  const void* input = nullptr;
  const void* weight = nullptr;
  const void* mean = nullptr;
  const void* scale = nullptr;
};

void launch_moments(cuda::NumberType type, std::int64_t rows, std::int64_t width, const void* input,
                    void* moments, cuda::Stream stream);
void launch_normalise(cuda::NumberType type, const AnyNormalRows& rows, const void* bias,
                      void* result, cuda::Stream stream);
void launch_slope_sums(cuda::NumberType type, const AnyNormalRows& rows, const void* gradient,
                       void* sums, cuda::Stream stream);
/// `parts` [2, strips, width]: of the gradients of weight and bias.
void launch_slopes(cuda::NumberType type, const AnyNormalRows& rows, std::int64_t strips,
                   const void* gradient, const void* means, void* back, void* parts,
                   cuda::Stream stream);

void launch_loss_parts(cuda::NumberType type, std::int64_t rows, std::int64_t words,
                       const void* scores, const std::int64_t* column, const bool* mine,
                       void* parts, cuda::Stream stream);
void launch_loss_slopes(cuda::NumberType type, std::int64_t rows, std::int64_t words,
                        const void* scores, const std::int64_t* column, const bool* mine,
                        const void* normaliser, const void* gradient, void* back,
                        cuda::Stream stream);

}  // namespace smp::tensor_parallel
