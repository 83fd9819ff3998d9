// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/fused_blocks_kernels.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/cuda/thread_lanes.h"

namespace smp::tensor_parallel {
namespace {

double waved(std::int64_t i) { return std::sin(static_cast<double>(i) * 1.7); }

/// By the definition, key after key.
std::vector<double> softmax_by_hand(const SoftmaxShape& shape, const std::vector<double>& scores,
                                    const std::vector<double>& bias) {
  std::vector<double> result(scores.size());
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const std::int64_t query = row % shape.queries;
    double total = 0;
    std::vector<double> raised;
    for (std::int64_t key = 0; key < shape.keys; ++key) {
      const std::int64_t later = key - (query + shape.keys - shape.queries);
      const bool hidden = shape.causal && (later > 0 || -later >= shape.window);
      const std::int64_t batch = row / shape.queries / shape.heads;
      const std::int64_t head = row / shape.queries % shape.heads;
      const std::int64_t* strides = shape.bias_strides;
      const std::int64_t place =
          batch * strides[0] + head * strides[1] + query * strides[2] + key * strides[3];
      const double score = scores[static_cast<std::size_t>(row * shape.keys + key)] +
                           (bias.empty() ? 0 : bias[static_cast<std::size_t>(place)]);
      raised.push_back(hidden ? 0 : std::exp(score));
      total += raised.back();
    }
    for (std::int64_t key = 0; key < shape.keys; ++key) {
      result[static_cast<std::size_t>(row * shape.keys + key)] =
          raised[static_cast<std::size_t>(key)] / total;
    }
  }
  return result;
}

/// With packs of N, by four lanes.
template <int N>
void compare_softmax(const std::vector<std::int64_t>& widths) {
  for (const std::int64_t keys : widths) {
    for (const std::int64_t window : {INT64_MAX, std::int64_t{1}, std::int64_t{3}}) {
      for (const bool causal : {false, true}) {
        for (const bool biased : {false, true}) {
          const SoftmaxShape shape{.rows = 2 * 3 * 5,
                                   .heads = 3,
                                   .queries = 5,
                                   .keys = keys,
                                   .causal = causal,
                                   .window = window,
                                   .bias_strides = {keys, 0, 0, 1}};  // [2, 1, 1, keys]
          std::vector<double> scores;
          for (std::int64_t i = 0; i < shape.rows * keys; ++i) scores.push_back(4 * waved(i));
          std::vector<double> bias;
          for (std::int64_t i = 0; biased && i < 2 * keys; ++i) bias.push_back(waved(-i));
          std::vector<double> result(scores.size());

          cuda::ThreadBlock(4).run([&](const auto& lanes) {
            for (std::int64_t row = 0; row < shape.rows; ++row) {
              softmax_row<N>(lanes, shape, row, scores.data(), biased ? bias.data() : nullptr,
                             result.data());
            }
          });

          const std::vector<double> expected = softmax_by_hand(shape, scores, bias);
          for (std::size_t i = 0; i < result.size(); ++i) {
            ASSERT_NEAR(result[i], expected[i], 1e-14);
          }
        }
      }
    }
  }
}

TEST(SoftmaxKernel, DoesWhatTheDefinitionSays) {
  compare_softmax<1>({5, 6, 9});
  compare_softmax<4>({8, 40, 100});  // beyond what four lanes read at once
}

TEST(SoftmaxKernel, PassesOverWhatCountsNothing) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const SoftmaxShape shape{.rows = 2, .heads = 1, .queries = 2, .keys = 8};
  std::vector<double> scores(16, kNever);
  scores[5] = scores[6] = 700;  // their exponentials alone are nearly too large
  std::vector<double> result(16);

  cuda::ThreadBlock(2).run([&](const auto& lanes) {
    for (std::int64_t row = 0; row < 2; ++row) {
      softmax_row<2, double>(lanes, shape, row, scores.data(), nullptr, result.data());
    }
  });

  EXPECT_EQ(std::vector<double>(result.begin(), result.begin() + 8),
            (std::vector<double>{0, 0, 0, 0, 0, 0.5, 0.5, 0}));
  for (std::size_t i = 8; i < 16; ++i) EXPECT_TRUE(std::isnan(result[i])) << "as torch's softmax";
}

TEST(SoftmaxKernel, HandsOnWhatIsNoNumber) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (std::size_t place = 0; place < 8; ++place) {
      const SoftmaxShape shape{.rows = 1, .heads = 1, .queries = 1, .keys = 8};
      std::vector<double> scores(8, -std::numeric_limits<double>::infinity());
      scores[2] = 1;
      scores[place] = bad;
      std::vector<double> result(8);

      cuda::ThreadBlock(2).run([&](const auto& lanes) {
        softmax_row<2, double>(lanes, shape, 0, scores.data(), nullptr, result.data());
      });

      EXPECT_TRUE(std::isnan(result[place]));
    }
  }
}

TEST(SoftmaxKernel, GivesNoNumberWhereNothingCounts) {
  const SoftmaxShape shape{.rows = 3, .heads = 1, .queries = 3, .keys = 2, .causal = true};
  const std::vector<float> scores(6, 1);
  std::vector<float> result(6);

  for (std::int64_t row = 0; row < 3; ++row) {
    softmax_row<1, float>(cuda::OneLane(), shape, row, scores.data(), nullptr, result.data());
  }

  EXPECT_TRUE(std::isnan(result[0]) && std::isnan(result[1]));
  EXPECT_EQ(std::vector<float>(result.begin() + 2, result.end()),
            (std::vector<float>{1, 0, 0.5, 0.5}));
}

template <GeluKind kKind>
void compare_gelu() {
  const auto gelu = [](double x) { return gelu_of<kKind, double>(x); };
  for (double x = -4; x <= 4; x += 0.25) {
    const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    const double expected = kKind == GeluKind::kErf ? x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)))
                                                    : x * 0.5 * (1 + std::tanh(inner));
    EXPECT_NEAR(gelu(x), expected, 1e-14);
    const double step = 1e-5;  // the error of the difference is about step^2
    const double slope = (gelu(x + step) - gelu(x - step)) / (2 * step);
    EXPECT_NEAR((gelu_slope<kKind, double>(x)), slope, 1e-9);
  }
}

TEST(GeluKernel, FollowsTheFormulaAndItsDerivative) {
  compare_gelu<GeluKind::kErf>();
  compare_gelu<GeluKind::kTanh>();
}

TEST(GeluKernel, IsExactEnoughForNumbersOf16Bits) {
  using Narrow = std::uint16_t;  // the size decides
  for (float x = -30; x <= 30; x += 0.01F) {
    const double wide = x;
    const double inner = std::sqrt(2 / M_PI) * (wide + 0.044715 * wide * wide * wide);
    const double bent = std::tanh(inner);
    const double slope = 0.5 * (1 + bent) + 0.5 * wide * (1 - bent * bent) * std::sqrt(2 / M_PI) *
                                                (1 + 3 * 0.044715 * wide * wide);
    // A hundredth of what rounding to 11 bits is off.
    EXPECT_NEAR((gelu_of<GeluKind::kTanh, Narrow>(x)), 0.5 * wide * (1 + bent), 5e-6);
    EXPECT_NEAR((gelu_slope<GeluKind::kTanh, Narrow>(x)), slope, 5e-6);
  }
}

/// All threads' tiles of a matrix, one after the other: groups of `down` times kAtOnce rows.
template <int N, typename Body>
void each_tile(std::int64_t rows, std::int64_t width, std::int64_t down, const Body& body) {
  for (std::int64_t group = 0; group < rows; group += down * cuda::kAtOnce) {
    for (std::int64_t own = 0; own < down; ++own) {
      for (std::int64_t column = 0; column < width; column += N) {
        body(cuda::Tile{
            .rows = rows, .width = width, .row = group + own, .step = down, .column = column});
      }
    }
  }
}

TEST(GeluKernel, TakesTheBiasOfTheColumn) {
  constexpr std::int64_t kRows = 11;
  constexpr std::int64_t kWidth = 6;
  std::vector<double> input;
  for (std::int64_t i = 0; i < kRows * kWidth; ++i) input.push_back(waved(i));
  const std::vector<double> bias{1, -1, 2, -2, 3, -3};
  std::vector<double> result(input.size(), -7);
  std::vector<double> back(input.size(), -7);

  each_tile<2>(kRows, kWidth, 2, [&](const cuda::Tile& tile) {
    bias_gelu_tile<GeluKind::kErf, 2>(tile, input.data(), bias.data(), result.data());
  });
  std::vector<double> sums(kWidth);
  for (std::int64_t column = 0; column < kWidth; column += 2) {
    bias_gelu_slopes_of_strip<GeluKind::kErf, 2>(
        {.width = kWidth, .begin = 0, .end = kRows, .column = column}, input.data(), bias.data(),
        input.data(), back.data(), sums.data() + column);
  }

  for (std::size_t i = 0; i < input.size(); ++i) {
    const double x = input[i] + bias[i % kWidth];
    EXPECT_EQ(result[i], (gelu_of<GeluKind::kErf, double>(x)));
    EXPECT_EQ(back[i], (input[i] * gelu_slope<GeluKind::kErf, double>(x)));
    sums[i % kWidth] -= back[i];
  }
  for (const double left : sums) EXPECT_NEAR(left, 0, 1e-14);
}

}  // namespace
}  // namespace smp::tensor_parallel
