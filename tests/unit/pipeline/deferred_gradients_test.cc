// SPDX-License-Identifier: Apache-2.0
// A backward in two parts, beside Torch's own.
#include "smp_runtime/pipeline/engine/deferred_gradients.h"

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {
namespace {

using at::Tensor;
using Leaf = DeferredGradients::Leaf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;
using Tensors = std::vector<Tensor>;

Tensor parameter(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

struct Network {
  Tensors parameters;
  std::function<Tensor(const Tensor& input)> forward;
  DeferredGradients::Saved saved = {};
};

struct Outcome {
  Tensors gradients;  ///< of the parameters; undefined where there is none
  Tensor of_input;
  size_t works = 0;
  bool parameters_came_late = false;  ///< none had a gradient after the first part
  std::set<std::string, std::less<>> not_later;
};

Tensors take_gradients(const Tensors& parameters) {
  Tensors gradients;
  for (const Tensor& one : parameters) {
    gradients.push_back(one.grad().defined() ? one.grad().clone() : Tensor());
    one.mutable_grad() = Tensor();
  }
  return gradients;
}

Outcome backward(const Network& network, bool is_split) {
  at::manual_seed(3);
  const Tensor input = parameter({6, 8});
  const Tensor loss = network.forward(input).square().sum();
  std::vector<torch_compat::NodePtr> held;
  std::set<const torch::autograd::Node*> accumulators;
  for (const Tensor& one : network.parameters) {
    held.push_back(torch::autograd::impl::grad_accumulator(one));
    accumulators.insert(held.back().get());
  }
  torch::autograd::edge_list edges{torch::autograd::impl::gradient_edge(loss)};
  DeferredGradients deferred(
      [&](auto& node) { return accumulators.contains(&node) ? Leaf::kParameter : Leaf::kOther; },
      network.saved);
  DeferredGradients::Works works;
  Outcome outcome;
  if (is_split) {
    works = deferred.split(5, edges, [&](std::string_view why) { outcome.not_later.emplace(why); });
  }
  outcome.works = works.size();
  auto& engine = torch::autograd::Engine::get_default_engine();
  engine.execute(edges, {at::ones_like(loss)}, false, false, true);
  outcome.of_input = input.grad();
  outcome.parameters_came_late = true;
  for (const Tensor& one : network.parameters) {
    if (one.grad().defined()) outcome.parameters_came_late = false;
  }
  DeferredGradients::check(works);
  EXPECT_EQ(deferred.of(5).left, outcome.works);
  while (deferred.next()) deferred.run_next();
  EXPECT_TRUE(deferred.of(5).is_done());
  outcome.gradients = take_gradients(network.parameters);
  return outcome;
}

/// The outcome in two parts, whose every bit is that of one.
Outcome in_two_parts(const Network& network) {
  const Outcome whole = backward(network, false);
  const Outcome parts = backward(network, true);
  EXPECT_TRUE(at::equal(whole.of_input, parts.of_input));
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    EXPECT_EQ(whole.gradients[i].defined(), parts.gradients[i].defined()) << i;
    if (whole.gradients[i].defined()) {
      EXPECT_TRUE(at::equal(whole.gradients[i], parts.gradients[i])) << i;
    }
  }
  return parts;
}

TEST(DeferredGradients, OfLayersComeLaterWithTheirBits) {
  const Tensors p{parameter({16, 8}), parameter({16}), parameter({8, 16}), parameter({8})};

  const Outcome outcome =
      in_two_parts({p, [&](const Tensor& x) {
                      return at::linear(at::gelu(at::linear(x, p[0], p[1])), p[2], p[3]);
                    }});

  EXPECT_EQ(outcome.works, 2);
  EXPECT_TRUE(outcome.parameters_came_late);
  EXPECT_THAT(outcome.not_later, IsEmpty());
}

TEST(DeferredGradients, OfConvolutionsAndProductsWithoutBiasToo) {
  const Tensors p{parameter({8, 8}), parameter({4, 2, 3}), parameter({4})};

  const Outcome outcome = in_two_parts({p, [&](const Tensor& x) {
                                          const Tensor y = at::linear(x, p[0]).view({6, 2, 4});
                                          return at::conv1d(y, p[1], p[2]);
                                        }});

  EXPECT_EQ(outcome.works, 2);
  EXPECT_TRUE(outcome.parameters_came_late);
}

TEST(DeferredGradients, OfALayerThatIsUsedTwiceAreAddedInOneRun) {
  const Tensors p{parameter({8, 8}), parameter({8}), parameter({8, 8})};

  const Outcome outcome = in_two_parts({p, [&](const Tensor& x) {
                                          const Tensor once = at::linear(x, p[0], p[1]).tanh();
                                          const Tensor other = at::linear(once, p[2]).tanh();
                                          return at::linear(other, p[0], p[1]) + once;
                                        }});

  EXPECT_EQ(outcome.works, 2);
  EXPECT_TRUE(outcome.parameters_came_late);
}

TEST(DeferredGradients, ThroughWhatIsMadeOfParametersAlone) {
  // As by weight normalisation, and by a product in 16 bits.
  const Tensors p{parameter({8, 8}), parameter({8, 1})};

  const Outcome outcome = in_two_parts(
      {p, [&](const Tensor& x) {
         const Tensor norm = p[0].norm(2, {1}, true);
         const Tensor weight = p[0] / norm * p[1];
         return at::linear(x.to(at::kBFloat16), weight.to(at::kBFloat16)).to(at::kFloat);
       }});

  EXPECT_EQ(outcome.works, 1);
  EXPECT_TRUE(outcome.parameters_came_late);
}

TEST(DeferredGradients, ComeAtOnceWhereSomethingElseReadsTheParameter) {
  const Tensors p{parameter({8, 8}), parameter({8, 8})};

  const Outcome outcome = in_two_parts({p, [&](const Tensor& x) {
                                          const Tensor y = at::linear(x, p[0]);
                                          return at::linear(y / p[0].sum(), p[1]);
                                        }});

  EXPECT_EQ(outcome.works, 1);  // p[1]'s
  EXPECT_FALSE(outcome.parameters_came_late);
}

TEST(DeferredGradients, ABiasThatIsReadElsewhereComesAtOnceAndItsWeightWithIt) {
  const Tensors p{parameter({8, 8}), parameter({8})};

  const Outcome outcome =
      in_two_parts({p, [&](const Tensor& x) { return at::linear(x, p[0], p[1]) / p[1]; }});

  EXPECT_EQ(outcome.works, 0);
  EXPECT_FALSE(outcome.parameters_came_late);
}

TEST(DeferredGradients, ComeAtOnceFromANodeWithHooks) {
  const Tensors p{parameter({8, 8})};
  int seen = 0;

  const Outcome outcome = in_two_parts({p, [&](const Tensor& x) {
                                          const Tensor y = at::linear(x, p[0]);
                                          y.register_hook([&](const Tensor&) { ++seen; });
                                          return y;
                                        }});

  EXPECT_EQ(outcome.works, 0);
  EXPECT_EQ(seen, 2);
  EXPECT_THAT(outcome.not_later, ElementsAre("a hook is to see the gradients of a layer"));
}

TEST(DeferredGradients, OfTheFirstLayersComeLaterAndWhatIsBehindThemDoesNot) {
  // Nothing else waits for the backward of these, and all that is behind leads to parameters alone.
  const Tensors p{parameter({10, 8}), parameter({8}), parameter({8, 8}), parameter({8, 8})};
  const Tensor indices = at::arange(6);

  const Outcome outcome = in_two_parts({p, [&](const Tensor& x) {
                                          const Tensor y = at::embedding(p[0], indices) / p[1];
                                          return at::linear(at::linear(y, p[2]).tanh(), p[3]) + x;
                                        }});

  EXPECT_EQ(outcome.works, 3);  // but of p[1]
  EXPECT_FALSE(outcome.parameters_came_late);
}

TEST(DeferredGradients, ALossThatIsMadeOfAParameterItselfComesAtOnce) {
  const Tensors p{parameter({8, 8})};

  const Outcome outcome =
      in_two_parts({p, [&](const Tensor& x) { return p[0].square() - x.sum(); }});

  EXPECT_EQ(outcome.works, 0);
}

/// Gives what a node has saved while a backward runs, and once only: so does torch's checkpoint.
class Once : public torch::autograd::SavedVariableHooks {
 public:
  explicit Once(const bool& is_first_part) : is_first_part_(is_first_part) {}
  void call_pack_hook(const Tensor& tensor) override { tensor_ = tensor.detach(); }
  Tensor call_unpack_hook() override {
    EXPECT_TRUE(is_first_part_);
    EXPECT_TRUE(tensor_.defined()) << "asked for a second time";
    return std::exchange(tensor_, Tensor());
  }

 private:
  const bool& is_first_part_;
  Tensor tensor_;
};

TEST(DeferredGradients, AskOnceForWhatANodeHasSaved) {
  const Tensors p{parameter({16, 8}), parameter({16}), parameter({8, 16})};
  const auto forward = [&](const Tensor& x, bool is_hooked) {
    static const bool always = true;
    const auto hook = [&](torch::autograd::SavedVariable& saved) {
      if (is_hooked) saved.register_hooks(std::make_unique<Once>(always));
    };
    using namespace torch::autograd::generated;
    const Tensor first = at::linear(x, p[0], p[1]);
    auto& sum = dynamic_cast<AddmmBackward0&>(*first.grad_fn());
    hook(sum.mat1_);
    hook(sum.mat2_);
    // Twice, in one run later.
    const Tensor weight = p[2] / 2;
    const Tensor second = at::linear(first.tanh(), weight);
    hook(dynamic_cast<MmBackward0&>(*second.grad_fn()).self_);
    return second;
  };

  Outcome outcome = in_two_parts({p, [&](const Tensor& x) { return forward(x, true); }});

  EXPECT_EQ(outcome.works, 1);  // nobody knows what a quotient has saved
  EXPECT_EQ(outcome.not_later.size(), 1);

  const auto of_quotient = [](torch::autograd::Node& node) {
    using torch::autograd::generated::DivBackward1;
    return dynamic_cast<DivBackward1*>(&node) == nullptr ? std::nullopt
                                                         : std::optional(SavedTensors{});
  };
  outcome = in_two_parts({p, [&](const Tensor& x) { return forward(x, true); }, of_quotient});

  EXPECT_EQ(outcome.works, 2);
  EXPECT_TRUE(outcome.parameters_came_late);
  EXPECT_THAT(outcome.not_later, IsEmpty());
}

TEST(DeferredGradients, AreRefusedOfAGradientThatWasChangedSince) {
  const Tensors p{parameter({8, 8})};
  const Network network{p, [&](const Tensor& x) {
                          const Tensor y = x.tanh();
                          // The sum gives both the same gradient, the product of later first.
                          y.register_hook([](const Tensor& gradient) { gradient.mul_(2); });
                          return y + at::linear(x, p[0]);
                        }};
  EXPECT_TRUE(backward(network, false).gradients[0].defined());

  EXPECT_THAT([&] { backward(network, true); },
              ThrowsMessage<UserCodeError>(
                  HasSubstr("a gradient that came to MmBackward0 was changed in place")));
}

TEST(DeferredGradients, AreForgottenWithAStepThatFailed) {
  const Tensor weight = parameter({8, 8});
  const Tensor loss = at::linear(parameter({2, 8}), weight).sum();
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight);
  DeferredGradients deferred(
      [&](auto& node) { return &node == accumulator.get() ? Leaf::kParameter : Leaf::kOther; });
  torch::autograd::edge_list edges{torch::autograd::impl::gradient_edge(loss)};
  auto works = deferred.split(5, edges);
  torch::autograd::Engine::get_default_engine().execute(edges, {at::ones({})}, false, false, true);
  DeferredGradients::check(works);

  deferred.clear();

  EXPECT_EQ(deferred.next(), std::nullopt);
  EXPECT_FALSE(weight.grad().defined());
}

}  // namespace
}  // namespace smp::pipeline
