// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/row_kernels.h"

#include <cmath>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/cuda/thread_lanes.h"

namespace smp::tensor_parallel {
namespace {

using Numbers = std::vector<double>;

constexpr std::int64_t kRows = 5;     // a tile's, and one
constexpr std::int64_t kWidth = 100;  // beyond what four lanes read at once
constexpr double kEpsilon = 1e-3;

Numbers waved(std::int64_t count, double pace) {
  Numbers values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(std::sin(pace * static_cast<double>(i)));
  return values;
}

/// Layer normalisation by the kernels' functions with packs of N, several lanes each.
template <int N>
struct Layer {
  Numbers input, weight, bias;
  Numbers mean = Numbers(kRows);
  Numbers scale = Numbers(kRows);

  [[nodiscard]] NormalRows<double> rows() const {
    return {.width = kWidth,
            .input = input.data(),
            .weight = weight.data(),
            .mean = mean.data(),
            .scale = scale.data()};
  }

  Numbers forward() {
    Numbers moments(2 * kRows);
    Numbers result(input.size());
    cuda::ThreadBlock(4).run([&](const auto& lanes) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        moments_of_row<N>(lanes, row, kWidth, input.data(), moments.data());
      }
    });
    for (std::size_t row = 0; row < kRows; ++row) {
      mean[row] = moments[2 * row + 1];
      scale[row] = 1 / std::sqrt(moments[2 * row] + kEpsilon);
    }
    each_tile([&](const cuda::Tile& tile) {
      normalise_tile<N>(tile, rows(), bias.data(), result.data());
    });
    return result;
  }

  template <typename Body>
  static void each_tile(const Body& body) {
    for (std::int64_t row = 0; row < kRows; row += cuda::kAtOnce) {
      for (std::int64_t column = 0; column < kWidth; column += N) {
        body(cuda::Tile{.rows = kRows, .width = kWidth, .row = row, .column = column});
      }
    }
  }

  struct Slopes {
    Numbers input, weight, bias;
  };

  [[nodiscard]] Slopes backward(const Numbers& gradient) const {
    Numbers sums(2 * kRows);
    Slopes slopes{Numbers(input.size()), Numbers(kWidth), Numbers(kWidth)};
    cuda::ThreadBlock(4).run([&](const auto& lanes) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        slope_sums_of_row<N>(lanes, rows(), row, gradient.data(), sums.data());
      }
    });
    for (double& sum : sums) sum /= kWidth;
    // Two strips, of which the second has another number of rows.
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, kRows}}) {
      for (std::int64_t column = 0; column < kWidth; column += N) {
        double weights[N];
        double biases[N];
        slopes_of_strip<N>({.width = kWidth, .begin = begin, .end = end, .column = column}, rows(),
                           gradient.data(), sums.data(), slopes.input.data(), weights, biases);
        for (std::int64_t j = 0; j < N; ++j) {
          slopes.weight[column + j] += weights[j];
          slopes.bias[column + j] += biases[j];
        }
      }
    }
    return slopes;
  }
};

template <int N>
Layer<N> a_layer(double shift = 0) {
  Layer<N> layer{
      .input = waved(kRows * kWidth, 1.3), .weight = waved(kWidth, 0.7), .bias = waved(kWidth, 2)};
  for (double& number : layer.input) number += shift;
  return layer;
}

template <typename Made>
class LayerNormKernel : public testing::Test {};
template <int N>
using PackOf = std::integral_constant<int, N>;
using Packs = testing::Types<PackOf<1>, PackOf<4>>;
TYPED_TEST_SUITE(LayerNormKernel, Packs);

TYPED_TEST(LayerNormKernel, NormalisesEachRow) {
  Layer<TypeParam::value> layer = a_layer<TypeParam::value>(1000);  // shifted: squares would cancel

  const Numbers result = layer.forward();

  for (std::size_t row = 0; row < kRows; ++row) {
    double mean = 0;
    double square = 0;
    for (std::size_t i = 0; i < kWidth; ++i) mean += layer.input[row * kWidth + i] / kWidth;
    for (std::size_t i = 0; i < kWidth; ++i) {
      square += std::pow(layer.input[row * kWidth + i] - mean, 2) / kWidth;
    }
    for (std::size_t i = 0; i < kWidth; ++i) {
      const double normal = (layer.input[row * kWidth + i] - mean) / std::sqrt(square + kEpsilon);
      EXPECT_NEAR(result[row * kWidth + i], normal * layer.weight[i] + layer.bias[i], 1e-11);
    }
  }
}

/// The slope of sum(gradient * result) along one number of `numbers`, by central differences.
template <typename Made>
double difference(const Made& layer, Numbers Made::*numbers, std::size_t i,
                  const Numbers& gradient) {
  constexpr double kStep = 1e-6;
  const auto loss = [&](double shift) {
    Made moved = layer;
    (moved.*numbers)[i] += shift;
    const Numbers result = moved.forward();
    double sum = 0;
    for (std::size_t j = 0; j < result.size(); ++j) sum += gradient[j] * result[j];
    return sum;
  };
  return (loss(kStep) - loss(-kStep)) / (2 * kStep);
}

TYPED_TEST(LayerNormKernel, GradientsAreThoseOfDifferences) {
  using Made = Layer<TypeParam::value>;
  Made layer = a_layer<TypeParam::value>();
  layer.forward();
  const Numbers gradient = waved(kRows * kWidth, 0.9);

  const typename Made::Slopes slopes = layer.backward(gradient);

  for (std::size_t i = 0; i < layer.input.size(); ++i) {
    EXPECT_NEAR(slopes.input[i], difference(layer, &Made::input, i, gradient), 1e-7);
  }
  for (std::size_t i = 0; i < kWidth; ++i) {
    EXPECT_NEAR(slopes.weight[i], difference(layer, &Made::weight, i, gradient), 1e-7);
    EXPECT_NEAR(slopes.bias[i], difference(layer, &Made::bias, i, gradient), 1e-7);
  }
}

template <int N>
void compare_loss() {
  constexpr std::int64_t kWords = 44;
  const Numbers scores = waved(2 * kWords, 1.1);
  const std::vector<std::int64_t> column{4, 0};
  const bool mine[] = {true, false};
  const Numbers gradient{2, 3};
  Numbers parts(6);
  Numbers back(scores.size());
  Numbers normaliser(2);

  cuda::ThreadBlock(3).run([&](const auto& lanes) {
    for (std::int64_t row = 0; row < 2; ++row) {
      loss_parts_of_row<N>(lanes, row, kWords, scores.data(), column.data(), mine, parts.data());
    }
  });
  for (std::size_t row = 0; row < 2; ++row) {
    normaliser[row] = parts[3 * row] + std::log(parts[3 * row + 1]);
  }
  cuda::ThreadBlock(3).run([&](const auto& lanes) {
    for (std::int64_t row = 0; row < 2; ++row) {
      loss_slopes_of_row<N>(lanes, row, kWords, scores.data(), column.data(), mine,
                            normaliser.data(), gradient.data(), back.data());
    }
  });

  EXPECT_EQ(parts[2], scores[4]);
  EXPECT_EQ(parts[5], 0);
  for (std::size_t row = 0; row < 2; ++row) {
    double total = 0;
    for (std::size_t i = 0; i < kWords; ++i) total += std::exp(scores[row * kWords + i]);
    EXPECT_NEAR(normaliser[row], std::log(total), 1e-13);
    for (std::size_t i = 0; i < kWords; ++i) {
      const double right = row == 0 && i == 4 ? 1 : 0;
      EXPECT_NEAR(back[row * kWords + i],
                  (std::exp(scores[row * kWords + i]) / total - right) * gradient[row], 1e-13);
    }
  }
}

TEST(LossKernel, MakesTheLossAndItsGradient) {
  compare_loss<1>();
  compare_loss<4>();
}

}  // namespace
}  // namespace smp::tensor_parallel
