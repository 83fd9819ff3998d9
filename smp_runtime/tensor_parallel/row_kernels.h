// SPDX-License-Identifier: Apache-2.0
// What sliced_layer_norm.h and vocabulary_loss.h do with the rows of a matrix, as a GPU's block
// does it. Without Torch; runs on the CPU, too.
//
// Numbers made of a row are of the type Wide<T>. 16-bit numbers are widened when they are read and
// rounded once, when they are written.
#pragma once

#include <cmath>
#include <cstdint>

#include "smp_runtime/cuda/lanes.h"
#include "smp_runtime/cuda/launch.h"

namespace smp::tensor_parallel {

// --- Layer normalisation of rows [width] ---

/// moments[row] becomes {variance, mean}: the squares of what is left when the mean is taken away,
/// so that nothing cancels.
template <typename T, typename Lanes>
SMP_ON_BOTH void moments_of_row(const Lanes& lanes, std::int64_t row, std::int64_t width,
                                const T* input, cuda::Wide<T>* moments) {
  using W = cuda::Wide<T>;
  const T* const own = input + row * width;
  W total = 0;
  for (std::int64_t i = lanes.first(); i < width; i += lanes.count()) {
    total += static_cast<W>(own[i]);
  }
  const W mean = lanes.sum(total) / static_cast<W>(width);
  W squares = 0;
  for (std::int64_t i = lanes.first(); i < width; i += lanes.count()) {
    const W apart = static_cast<W>(own[i]) - mean;
    squares += apart * apart;
  }
  squares = lanes.sum(squares);
  if (lanes.first() != 0) return;
  moments[2 * row] = squares / static_cast<W>(width);
  moments[2 * row + 1] = mean;
}

/// What rows are normalised by.
template <typename T>
struct NormalRows {
  std::int64_t width = 0;
  const T* input = nullptr;
  const T* weight = nullptr;             ///< [width]
  const cuda::Wide<T>* mean = nullptr;   ///< [rows]
  const cuda::Wide<T>* scale = nullptr;  ///< [rows]: one over the deviation

  SMP_ON_BOTH cuda::Wide<T> normal(std::int64_t row, std::int64_t i) const {
    return (static_cast<cuda::Wide<T>>(input[row * width + i]) - mean[row]) * scale[row];
  }
};

template <typename T, typename Lanes>
SMP_ON_BOTH void normalise_row(const Lanes& lanes, const NormalRows<T>& rows, std::int64_t row,
                               const T* bias, T* result) {
  using W = cuda::Wide<T>;
  for (std::int64_t i = lanes.first(); i < rows.width; i += lanes.count()) {
    result[row * rows.width + i] = static_cast<T>(
        rows.normal(row, i) * static_cast<W>(rows.weight[i]) + static_cast<W>(bias[i]));
  }
}

/// sums[row] becomes {sum of g, sum of g times normal}, g the gradient times the weight.
template <typename T, typename Lanes>
SMP_ON_BOTH void slope_sums_of_row(const Lanes& lanes, const NormalRows<T>& rows, std::int64_t row,
                                   const T* gradient, cuda::Wide<T>* sums) {
  using W = cuda::Wide<T>;
  W plain = 0;
  W along = 0;
  for (std::int64_t i = lanes.first(); i < rows.width; i += lanes.count()) {
    const W inner = static_cast<W>(gradient[row * rows.width + i]) * static_cast<W>(rows.weight[i]);
    plain += inner;
    along += inner * rows.normal(row, i);
  }
  plain = lanes.sum(plain);
  along = lanes.sum(along);
  if (lanes.first() != 0) return;
  sums[2 * row] = plain;
  sums[2 * row + 1] = along;
}

/// The gradient of the input, from the means of those sums over the whole row.
template <typename T, typename Lanes>
SMP_ON_BOTH void slopes_of_row(const Lanes& lanes, const NormalRows<T>& rows, std::int64_t row,
                               const T* gradient, const cuda::Wide<T>* means, T* back) {
  using W = cuda::Wide<T>;
  for (std::int64_t i = lanes.first(); i < rows.width; i += lanes.count()) {
    const W inner = static_cast<W>(gradient[row * rows.width + i]) * static_cast<W>(rows.weight[i]);
    back[row * rows.width + i] = static_cast<T>(
        (inner - means[2 * row] - rows.normal(row, i) * means[2 * row + 1]) * rows.scale[row]);
  }
}

/// What rows [begin, end) add to the gradients of weight and bias in column `i`.
template <typename T>
SMP_ON_BOTH void slopes_of_column(const NormalRows<T>& rows, std::int64_t begin, std::int64_t end,
                                  std::int64_t i, const T* gradient, cuda::Wide<T>* weight,
                                  cuda::Wide<T>* bias) {
  using W = cuda::Wide<T>;
  W own_weight = 0;
  W own_bias = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    const W slope = static_cast<W>(gradient[row * rows.width + i]);
    own_weight += slope * rows.normal(row, i);
    own_bias += slope;
  }
  weight[i] = own_weight;
  bias[i] = own_bias;
}

// --- Cross entropy of rows [words] ---

/// parts[row] becomes {largest, sum of exponentials below it, score in `column` or 0}. `column` is
/// the row's, and counts where `mine` says so.
template <typename T, typename Lanes>
SMP_ON_BOTH void loss_parts_of_row(const Lanes& lanes, std::int64_t row, std::int64_t words,
                                   const T* scores, const std::int64_t* column, const bool* mine,
                                   cuda::Wide<T>* parts) {
  using W = cuda::Wide<T>;
  const T* const own = scores + row * words;
  W top = -static_cast<W>(INFINITY);
  for (std::int64_t i = lanes.first(); i < words; i += lanes.count()) {
    const W value = static_cast<W>(own[i]);
    if (!(value <= top)) top = value;  // also what is no number
  }
  top = lanes.largest(top);
  W total = 0;
  for (std::int64_t i = lanes.first(); i < words; i += lanes.count()) {
    total += std::exp(static_cast<W>(own[i]) - top);
  }
  total = lanes.sum(total);
  if (lanes.first() != 0) return;
  parts[3 * row] = top;
  parts[3 * row + 1] = total;
  parts[3 * row + 2] = mine[row] ? static_cast<W>(own[column[row]]) : W(0);
}

/// (exp(score - normaliser) - 1 in the row's column) * gradient.
template <typename T, typename Lanes>
SMP_ON_BOTH void loss_slopes_of_row(const Lanes& lanes, std::int64_t row, std::int64_t words,
                                    const T* scores, const std::int64_t* column, const bool* mine,
                                    const cuda::Wide<T>* normaliser, const cuda::Wide<T>* gradient,
                                    T* back) {
  using W = cuda::Wide<T>;
  for (std::int64_t i = lanes.first(); i < words; i += lanes.count()) {
    const W share = std::exp(static_cast<W>(scores[row * words + i]) - normaliser[row]);
    const W right = mine[row] && i == column[row] ? W(1) : W(0);
    back[row * words + i] = static_cast<T>((share - right) * gradient[row]);
  }
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
void launch_slopes(cuda::NumberType type, const AnyNormalRows& rows, const void* gradient,
                   const void* means, void* back, cuda::Stream stream);
/// `parts` [2, kRowSplits, width]: of the gradients of weight and bias.
void launch_column_slopes(cuda::NumberType type, const AnyNormalRows& rows, const void* gradient,
                          void* parts, cuda::Stream stream);
constexpr std::int64_t kRowSplits = 64;

void launch_loss_parts(cuda::NumberType type, std::int64_t rows, std::int64_t words,
                       const void* scores, const std::int64_t* column, const bool* mine,
                       void* parts, cuda::Stream stream);
void launch_loss_slopes(cuda::NumberType type, std::int64_t rows, std::int64_t words,
                        const void* scores, const std::int64_t* column, const bool* mine,
                        const void* normaliser, const void* gradient, void* back,
                        cuda::Stream stream);

}  // namespace smp::tensor_parallel
