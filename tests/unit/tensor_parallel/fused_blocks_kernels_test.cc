// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/fused_blocks_kernels.h"

#include <cmath>
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

TEST(SoftmaxKernel, DoesWhatTheDefinitionSays) {
  for (const std::int64_t keys : {5, 6, 9}) {
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
              softmax_row(lanes, shape, row, scores.data(), biased ? bias.data() : nullptr,
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

TEST(SoftmaxKernel, GivesNoNumberWhereNothingCounts) {
  const SoftmaxShape shape{.rows = 3, .heads = 1, .queries = 3, .keys = 2, .causal = true};
  const std::vector<float> scores(6, 1);
  std::vector<float> result(6);

  for (std::int64_t row = 0; row < 3; ++row) {
    softmax_row<float>(cuda::OneLane(), shape, row, scores.data(), nullptr, result.data());
  }

  EXPECT_TRUE(std::isnan(result[0]) && std::isnan(result[1]));
  EXPECT_EQ(std::vector<float>(result.begin() + 2, result.end()),
            (std::vector<float>{1, 0, 0.5, 0.5}));
}

TEST(GeluKernel, FollowsTheFormulaAndItsDerivative) {
  for (const GeluKind kind : {GeluKind::kErf, GeluKind::kTanh}) {
    for (double x = -4; x <= 4; x += 0.25) {
      const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
      const double expected = kind == GeluKind::kErf ? x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)))
                                                     : x * 0.5 * (1 + std::tanh(inner));
      EXPECT_NEAR(gelu_of(kind, x), expected, 1e-14);
      const double step = 1e-5;  // the error of the difference is about step^2
      const double slope = (gelu_of(kind, x + step) - gelu_of(kind, x - step)) / (2 * step);
      EXPECT_NEAR(gelu_slope(kind, x), slope, 1e-9);
    }
  }
}

TEST(GeluKernel, RepeatsTheBias) {
  const std::vector<double> input{0, 1, 2, 3, 4, 5, 6};
  const std::vector<double> bias{1, -1};
  std::vector<double> result(7, -7);
  std::vector<double> back(7, -7);

  cuda::ThreadBlock(3).run([&](const auto& lanes) {
    bias_gelu_elements(lanes, GeluKind::kErf, 2, 6, 2, input.data(), bias.data(), result.data());
    bias_gelu_slopes(lanes, GeluKind::kErf, 2, 6, 2, input.data(), bias.data(), input.data(),
                     back.data());
  });

  EXPECT_EQ(result[1], -7);
  EXPECT_EQ(result[6], -7);
  for (std::size_t i = 2; i < 6; ++i) {
    EXPECT_EQ(result[i], gelu_of(GeluKind::kErf, input[i] + bias[i % 2]));
    EXPECT_EQ(back[i], input[i] * gelu_slope(GeluKind::kErf, input[i] + bias[i % 2]));
  }
}

}  // namespace
}  // namespace smp::tensor_parallel
