// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/engine.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/pipeline/engine_ranks.h"

namespace smp::pipeline::testing {
namespace {

using ::testing::HasSubstr;

/// Two ranks; `remote` is the only module and on rank 1.
void run_remote(const std::function<TensorTree(TensorTree)>& remote,
                const std::function<void(Engine&)>& body, std::vector<std::string>& errors) {
  Ranks group(2, {}, [&](int, Engine*&) {
    return [&](int64_t, TensorTree arguments, bool) { return remote(std::move(arguments)); };
  });
  errors = group.step(1, [&](int64_t) { body(group.engine(0)); });
}

void run_remote(const std::function<TensorTree(TensorTree)>& remote,
                const std::function<void(Engine&)>& body) {
  std::vector<std::string> errors;
  run_remote(remote, body, errors);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Engine, GivesGradientsToArgumentsAndLeavesOthersAlone) {
  const at::Tensor wanted = at::ones({3}).requires_grad_();
  const at::Tensor plain = at::full({3}, 2.0);
  const at::Tensor numbers = at::arange(3);

  run_remote([](TensorTree in) { return one(in.tensors[0] * in.tensors[1] + in.tensors[2]); },
             [&](Engine& engine) {
               const auto out =
                   engine.call({{.owner = 1, .target = 0}},
                               {.definition = {}, .tensors = {wanted, plain, numbers}});
               engine.backward({out.tensors[0].sum()}, {at::Tensor()}, 1.0);
             });

  EXPECT_TRUE(at::equal(wanted.grad(), plain));
  EXPECT_FALSE(plain.grad().defined());
}

TEST(Engine, LetsAModuleChangeItsInputInPlace) {
  const at::Tensor input = at::tensor({-1.0, 2.0}).requires_grad_();

  run_remote([](TensorTree in) { return one(in.tensors[0].relu_()); },
             [&](Engine& engine) {
               const auto out = engine.call({{.owner = 1, .target = 0}}, one(input * 3));
               engine.backward({out.tensors[0].sum()}, {at::Tensor()}, 1.0);
             });

  EXPECT_TRUE(at::equal(input.grad(), at::tensor({0.0, 3.0})));
}

TEST(Engine, ReturnsAnInputUnchangedWithItsGradient) {
  const at::Tensor input = at::ones({2}).requires_grad_();

  run_remote([](TensorTree in) { return in; },
             [&](Engine& engine) {
               const auto out = engine.call({{.owner = 1, .target = 0}}, one(input));
               engine.backward({out.tensors[0].sum() * 5}, {at::Tensor()}, 1.0);
             });

  EXPECT_TRUE(at::equal(input.grad(), at::full({2}, 5.0)));
}

TEST(Engine, IgnoresOutputsThatNobodyUses) {
  const at::Tensor input = at::ones({2}).requires_grad_();

  run_remote(
      [](TensorTree in) {
        return TensorTree{{}, {in.tensors[0] * 2, in.tensors[0] * 7, at::arange(4)}};
      },
      [&](Engine& engine) {
        const auto used = engine.call({{.owner = 1, .target = 0}}, one(input));
        engine.call({{.owner = 1, .target = 0}},
                    one(input));  // a whole call that the loss does not depend on
        EXPECT_FALSE(used.tensors[2].requires_grad());
        engine.backward({used.tensors[0].sum()}, {at::Tensor()}, 1.0);
      });

  EXPECT_TRUE(at::equal(input.grad(), at::full({2}, 2.0)));
}

TEST(Engine, TrainsARemoteModuleWhoseArgumentsNeedNoGradient) {
  const at::Tensor weight = at::ones({2}).requires_grad_();

  run_remote(
      [&](TensorTree in) {
        EXPECT_FALSE(in.tensors[0].requires_grad());
        return one(in.tensors[0] * weight);
      },
      [&](Engine& engine) {
        const auto out = engine.call({{.owner = 1, .target = 0}}, one(at::full({2}, 4.0)));
        engine.backward({out.tensors[0].sum()}, {at::Tensor()}, 0.5);
      });

  EXPECT_TRUE(at::equal(weight.grad(), at::full({2}, 2.0)));
}

TEST(Engine, CompletesGradientsForAStepThatLooksAtThem) {
  const at::Tensor near = at::eye(2).requires_grad_();
  const at::Tensor far = at::full({2, 2}, 2.0).requires_grad_();
  Ranks group(2, {.schedule = Schedule::kZeroBubble, .active_microbatches = 1}, [&](int, Engine*&) {
    return [&](int64_t, TensorTree in, bool) { return one(in.tensors[0].matmul(far)); };
  });
  group.engine(0).track_parameters({near});
  group.engine(1).track_parameters({far});
  std::vector<bool> was_there;
  bool looks = true;
  const auto body = [&](int64_t) {
    Engine& engine = group.engine(0);
    // Behind another rank's tensor, whose gradient is what the backward gives at once.
    const at::Tensor x = at::ones({2, 2}).requires_grad_();
    const auto out = engine.call({{.owner = 1, .target = 0}}, one(x.matmul(near)));
    near.mutable_grad() = at::Tensor();
    engine.backward({out.tensors[0].sum()}, {at::Tensor()}, 1.0);
    was_there.push_back(near.grad().defined());
    if (!looks) return;
    engine.complete_gradients();
    EXPECT_TRUE(at::equal(near.grad(), at::full({2, 2}, 8.0)));
  };

  EXPECT_EQ(group.step(2, body), std::vector<std::string>(2));
  looks = false;
  EXPECT_EQ(group.step(1, body), std::vector<std::string>(2));

  EXPECT_EQ(was_there, (std::vector{false, true, true})) << "it is left once, and never again";
}

TEST(Engine, CarriesNoGradToTheOwner) {
  run_remote(
      [](TensorTree in) {
        EXPECT_FALSE(at::GradMode::is_enabled());
        return one(in.tensors[0] * 2);
      },
      [](Engine& engine) {
        const at::NoGradGuard no_grad;
        const auto out =
            engine.call({{.owner = 1, .target = 0}}, one(at::ones({2}).requires_grad_()));
        EXPECT_FALSE(out.tensors[0].requires_grad());
      });
}

TEST(Engine, CarriesAutocastToTheOwner) {
  run_remote(
      [](TensorTree in) {
        return one(at::linear(in.tensors[0], at::ones({2, 2})));
      },
      [](Engine& engine) {
        at::autocast::set_autocast_enabled(at::kCPU, true);
        const auto out = engine.call({{.owner = 1, .target = 0}}, one(at::ones({2, 2})));
        at::autocast::set_autocast_enabled(at::kCPU, false);
        EXPECT_EQ(out.tensors[0].scalar_type(), at::kBFloat16);
      });
}

TEST(Engine, KeepsShapesAndTypesOfAllKinds) {
  run_remote([](TensorTree in) { return in; },
             [](Engine& engine) {
               const at::NoGradGuard no_grad;
               const std::vector<at::Tensor> tensors{
                   at::scalar_tensor(3.5),          at::empty({0, 4}),
                   at::arange(6).view({2, 3}).t(),  at::ones({1}).expand({4}),
                   at::ones({2}, at::kBool),        at::randn({2}, at::kComplexFloat),
                   at::randn({3}).to(at::kBFloat16)};
               const auto out = engine.call({{.owner = 1, .target = 0}},
                                            {.definition = "s", .tensors = tensors});
               ASSERT_EQ(out.tensors.size(), tensors.size());
               for (size_t index = 0; index < tensors.size(); ++index) {
                 EXPECT_EQ(out.tensors[index].dtype(), tensors[index].dtype());
                 EXPECT_TRUE(at::equal(out.tensors[index], tensors[index])) << index;
               }
               EXPECT_EQ(out.definition, "s");
             });
}

TEST(Engine, ErrorInARemoteBackwardReachesBothRanks) {
  std::vector<std::string> errors;

  run_remote(
      [](TensorTree in) {
        at::Tensor out = in.tensors[0] * 2;
        out.register_hook([](const at::Tensor& grad) -> at::Tensor {
          throw UserCodeError("backward fails on purpose");
          return grad;
        });
        return one(out);
      },
      [](Engine& engine) {
        const auto out =
            engine.call({{.owner = 1, .target = 0}}, one(at::ones({2}).requires_grad_()));
        engine.backward({out.tensors[0].sum()}, {at::Tensor()}, 1.0);
      },
      errors);

  EXPECT_THAT(errors[0], HasSubstr("backward fails on purpose"));
  EXPECT_THAT(errors[1], HasSubstr("backward fails on purpose"));
}

TEST(Engine, RefusesRemoteCallsAndBackwardOutsideAStep) {
  Ranks group(2, {}, [](int, Engine*&) {
    return [](int64_t, TensorTree arguments, bool) { return arguments; };
  });

  EXPECT_THROW(group.engine(0).call({{.owner = 1, .target = 0}}, one(at::ones({1}))),
               UserCodeError);
  EXPECT_THROW(group.engine(0).backward({at::ones({1})}, {at::Tensor()}, 1.0), UserCodeError);
}

}  // namespace
}  // namespace smp::pipeline::testing
