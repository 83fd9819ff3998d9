// SPDX-License-Identifier: Apache-2.0
// What takes the place of kernels on devices for which a build has none, beside what they do.
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/optimizer/adam.h"
#include "smp_runtime/optimizer/squares.h"

namespace smp::optimizer {
namespace {

using ::testing::Throws;

at::Tensor waves(double pace, at::ScalarType type) {
  return at::arange(5000, at::kDouble).mul_(pace).sin_().to(type);
}

struct Tensors {
  at::Tensor parameter, gradient, first, second;

  explicit Tensors(at::ScalarType type)
      : parameter(waves(0.1, type)),
        gradient(waves(0.2, type)),
        first(waves(0.3, type)),
        second(waves(0.4, type).abs().add_(0.1)) {}
};

TEST(WithoutKernels, AdamStepsAsOurs) {
  for (const auto& [type, tolerance] :
       {std::pair{at::kDouble, 1e-13}, {at::kFloat, 1e-5}, {at::kBFloat16, 2e-2}}) {
    for (const bool decoupled : {false, true}) {
      const AdamNumbers numbers{.factor = 0.5,
                                .rate = 0.1,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .epsilon = 1e-8,
                                .decay = 0.5,
                                .decoupled = decoupled,
                                .scale1 = 0.19,
                                .scale2 = 0.0199};
      const Tensors ours(type);
      const Tensors torchs(type);

      adam_step({ours.parameter}, {ours.gradient}, {ours.first}, {ours.second}, numbers);
      adam_by_torch({torchs.parameter, torchs.gradient, torchs.first, torchs.second}, numbers);

      EXPECT_TRUE(torchs.parameter.allclose(ours.parameter, tolerance, tolerance));
      EXPECT_TRUE(torchs.first.allclose(ours.first, tolerance, tolerance));
      EXPECT_TRUE(torchs.second.allclose(ours.second, tolerance, tolerance));
      EXPECT_TRUE(torchs.gradient.equal(ours.gradient)) << "gradients stay as they are";
      EXPECT_FALSE(torchs.parameter.equal(Tensors(type).parameter));
    }
  }
}

TEST(WithoutKernels, AdamTakesAnyDevice) {
  const auto made = [] { return at::empty({3}, at::TensorOptions(at::kMeta)); };

  EXPECT_NO_THROW(adam_step({made()}, {made()}, {made()}, {made()}, {}));
}

TEST(WithoutKernels, SquaresTakeAnyDevice) {
  const std::vector<at::Tensor> tensors(3, at::empty({3}, at::TensorOptions(at::kMeta)));

  EXPECT_EQ(squares_by_torch(tensors).numel(), 3);
  // Only their sum is missing, which no tensor of this device has.
  EXPECT_THAT([&] { sum_of_squares(tensors); }, Throws<c10::NotImplementedError>());
}

TEST(WithoutKernels, SquaresAreAddedUpAsOurs) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const std::vector<at::Tensor> tensors{at::arange(17).to(type), at::arange(5).to(type)};

    EXPECT_EQ(squares_by_torch(tensors).sum().item<double>(), sum_of_squares(tensors));
    EXPECT_TRUE(tensors[0].equal(at::arange(17).to(type))) << "gradients stay as they are";
  }
}

}  // namespace
}  // namespace smp::optimizer
