// SPDX-License-Identifier: Apache-2.0
// Random models over random placements: what several ranks compute is what one computes.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "smp_runtime/pipeline/engine/engine.h"
#include "tests/unit/fuzz_rounds.h"
#include "tests/unit/pipeline/engine_ranks.h"

namespace smp::pipeline::testing {
namespace {

constexpr int64_t kWidth = 5;

/// A module: affine map and activation, then its children one after the other, and a link.
struct Node {
  int owner = 0;
  int repeats = 1;
  std::vector<size_t> children;
  at::Tensor weight;
  at::Tensor bias;
};
using Model = std::vector<Node>;

/// Passes a tensor through `modules`, wherever they are.
using CallChain =
    std::function<at::Tensor(const std::vector<size_t>& modules, const at::Tensor& input)>;

at::Tensor run_children(const Node& node, at::Tensor value, const CallChain& call) {
  for (int repeat = 0; repeat < node.repeats; ++repeat) value = call(node.children, value);
  return value;
}

/// Whole numbers stay whole: every order and association of additions gives the same bits, so the
/// link may go around the whole module, and modules may be used any number of times.
at::Tensor run_whole_node(const Model& model, size_t index, const at::Tensor& input,
                          const CallChain& call) {
  const Node& node = model[index];
  const at::Tensor inner = at::relu(at::linear(input, node.weight, node.bias));
  return run_children(node, inner, call) + input;
}

/// Real numbers. The received tensor is used once and a parameter at most twice, so that splitting
/// the graph there changes no association of additions: results must agree to the bit here too.
at::Tensor run_real_node(const Model& model, size_t index, const at::Tensor& input,
                         const CallChain& call) {
  const Node& node = model[index];
  const at::Tensor inner = at::tanh(at::linear(input, node.weight, node.bias));
  return node.children.empty() ? inner : run_children(node, inner, call) + inner;
}

at::Tensor run_node(const Model& model, size_t index, const at::Tensor& input,
                    const CallChain& call) {
  return input.scalar_type() == at::kDouble ? run_whole_node(model, index, input, call)
                                            : run_real_node(model, index, input, call);
}

enum class Numbers { kReal, kWhole };

at::Tensor random_tensor(Numbers numbers, at::IntArrayRef sizes) {
  return numbers == Numbers::kReal ? at::randn(sizes) : at::randint(-1, 2, sizes, at::kDouble);
}

Model random_model(std::mt19937& random, Numbers numbers, int ranks, size_t nodes) {
  const auto below = [&random](size_t bound) { return random() % bound; };
  Model model(nodes);
  for (size_t index = 0; index < nodes; ++index) {
    Node& node = model[index];
    node.owner = index == 0 ? 0 : static_cast<int>(below(static_cast<size_t>(ranks)));
    node.repeats = numbers == Numbers::kReal ? 1 : 1 + static_cast<int>(below(2));
    node.weight = random_tensor(numbers, {kWidth, kWidth});
    node.bias = random_tensor(numbers, {kWidth});
    if (index > 0) model[below(index)].children.push_back(index);
  }
  // A module with two parents.
  if (nodes > 3) model[below(nodes - 1)].children.push_back(nodes - 1);
  return model;
}

Model replica(const Model& model) {
  Model copy = model;
  for (Node& node : copy) {
    node.weight = node.weight.clone().requires_grad_();
    node.bias = node.bias.clone().requires_grad_();
  }
  return copy;
}

struct StepResult {
  std::vector<at::Tensor> losses;
  std::vector<at::Tensor> weight_grads;
  std::vector<at::Tensor> bias_grads;
};

at::Tensor microbatch_of(const at::Tensor& batch, int64_t microbatches, int64_t microbatch) {
  return batch.chunk(microbatches)[static_cast<size_t>(microbatch)];
}

at::Tensor loss_of(const at::Tensor& output) {
  return output.scalar_type() == at::kDouble ? output.sum() : output.square().mean();
}

StepResult run_alone(const Model& original, const at::Tensor& batch, int64_t microbatches) {
  const Model model = replica(original);
  StepResult result;
  const CallChain call = [&](const std::vector<size_t>& modules, at::Tensor value) {
    for (const size_t index : modules) value = run_node(model, index, value, call);
    return value;
  };
  for (int64_t microbatch = 0; microbatch < microbatches; ++microbatch) {
    const at::Tensor loss = loss_of(call({0}, microbatch_of(batch, microbatches, microbatch)));
    loss.backward(at::full_like(loss, 1.0 / static_cast<double>(microbatches)));
    result.losses.push_back(loss.detach());
  }
  for (const Node& node : model) {
    result.weight_grads.push_back(node.weight.grad());
    result.bias_grads.push_back(node.bias.grad());
  }
  return result;
}

/// Ways in which modules of other ranks that follow each other are called.
enum class Exchange {
  kOverCaller,     ///< one by one
  kDirect,         ///< each gets the result from the one before it
  kRemoteTensors,  ///< one by one, with remote tensors for results
};

/// Tensor full of what no sum survives, so that nobody reads it unnoticed.
at::Tensor remote_tensor(const transport::TensorMeta& meta) {
  return at::full(meta.sizes, std::numeric_limits<double>::quiet_NaN(),
                  at::TensorOptions().dtype(meta.type));
}

/// From `at` on the modules that one call may pass through.
Route route_from(const Model& model, const std::vector<size_t>& modules, size_t at, int rank,
                 Exchange exchange) {
  Route route;
  for (; at < modules.size(); ++at) {
    const int owner = model[modules[at]].owner;
    if (owner == rank || (!route.empty() && owner == route.back().owner)) break;
    route.push_back({.owner = owner, .target = static_cast<int64_t>(modules[at])});
    if (exchange != Exchange::kDirect) break;
  }
  return route;
}

/// Steps of `original` over `ranks` ranks, by its nodes' owners.
StepResult run_split(const Model& original, int ranks, const ServerOptions& options,
                     const at::Tensor& batch, int64_t microbatches, int steps, Exchange exchange,
                     std::optional<uint32_t> late = {}) {
  std::vector<Model> replicas;
  for (int rank = 0; rank < ranks; ++rank) replicas.push_back(replica(original));
  std::vector<CallChain> calls(static_cast<size_t>(ranks));
  std::vector<Engine*> engines(static_cast<size_t>(ranks));
  const DirectOptions direct{.make_remote_tensor = exchange == Exchange::kRemoteTensors
                                                       ? RemoteTensorMaker(remote_tensor)
                                                       : RemoteTensorMaker(),
                             .min_bytes = 0};
  const auto runner = [&](int rank, Engine*&) {
    const auto at = static_cast<size_t>(rank);
    calls[at] = [&, at, rank](const std::vector<size_t>& modules, at::Tensor value) {
      for (size_t next = 0; next < modules.size();) {
        const Route route = route_from(original, modules, next, rank, exchange);
        next += std::max<size_t>(route.size(), 1);
        value = route.empty() ? run_node(replicas[at], modules[next - 1],
                                         engines[at]->data_of(value), calls[at])
                              : engines[at]->call(route, one(value)).tensors[0];
      }
      return engines[at]->data_of(value);
    };
    return [&, at](int64_t module, TensorTree arguments, bool /*passes_on*/) {
      return one(
          run_node(replicas[at], static_cast<size_t>(module), arguments.tensors[0], calls[at]));
    };
  };
  Ranks group(ranks, options, runner, direct, late);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    engines[at] = &group.engine(rank);
    std::vector<at::Tensor> parameters;
    for (size_t index = 0; index < original.size(); ++index) {
      if (original[index].owner != rank) continue;
      parameters.push_back(replicas[at][index].weight);
      parameters.push_back(replicas[at][index].bias);
    }
    engines[at]->track_parameters(parameters);
  }
  StepResult result;
  for (int step = 0; step < steps; ++step) {
    for (Model& model : replicas) {
      for (Node& node : model) {
        node.weight.mutable_grad().reset();
        node.bias.mutable_grad().reset();
      }
    }
    result.losses.assign(static_cast<size_t>(microbatches), {});
    const auto errors = group.step(microbatches, [&](int64_t microbatch) {
      const at::Tensor input = microbatch_of(batch, microbatches, microbatch);
      const at::Tensor loss = loss_of(calls[0]({0}, input));
      engines[0]->backward({loss}, {at::Tensor()}, 1.0 / static_cast<double>(microbatches));
      result.losses[static_cast<size_t>(microbatch)] = loss.detach();
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
  for (size_t index = 0; index < original.size(); ++index) {
    const Node& node = replicas[static_cast<size_t>(original[index].owner)][index];
    result.weight_grads.push_back(node.weight.grad());
    result.bias_grads.push_back(node.bias.grad());
  }
  return result;
}

using Compare = std::function<bool(const at::Tensor&, const at::Tensor&)>;

void expect_same(const StepResult& expected, const StepResult& actual, const Compare& same) {
  const auto all = [&](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t index = 0; index < a.size(); ++index) {
      ASSERT_EQ(a[index].defined(), b[index].defined()) << index;
      if (a[index].defined()) {
        EXPECT_TRUE(same(a[index], b[index]))
            << index << ": " << a[index].abs().max().item<double>() << " differs by "
            << (a[index] - b[index]).abs().max().item<double>();
      }
    }
  };
  all(expected.losses, actual.losses);
  all(expected.weight_grads, actual.weight_grads);
  all(expected.bias_grads, actual.bias_grads);
}

class AnyPlacement : public ::testing::TestWithParam<std::tuple<Numbers, Schedule, Exchange>> {};

TEST_P(AnyPlacement, DeterministicResultsEqualOneProcessToTheBit) {
  const auto [numbers, schedule, exchange] = GetParam();
  std::mt19937 random(11);
  at::manual_seed(11);
  for (int round = 0; round < 20; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    const Model model = random_model(random, numbers, ranks, 2 + random() % 6);
    const int64_t microbatches = int64_t{1} << (random() % 3);  // exact averages
    const at::Tensor batch = random_tensor(numbers, {microbatches * 3, kWidth});

    const StepResult split = run_split(
        model, ranks, {.schedule = schedule, .active_microbatches = 3, .deterministic = true},
        batch, microbatches, /*steps=*/3, exchange);

    const StepResult alone = run_alone(model, batch, microbatches);
    for (const at::Tensor& loss : alone.losses) {
      ASSERT_LT(loss.abs().item<double>(), 1e12);  // far from where whole numbers stop being exact
    }
    expect_same(alone, split,
                [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Engine, AnyPlacement,
    ::testing::Combine(
        ::testing::Values(Numbers::kReal, Numbers::kWhole),
        ::testing::Values(Schedule::kSimple, Schedule::kInterleaved, Schedule::kZeroBubble),
        ::testing::Values(Exchange::kOverCaller, Exchange::kDirect, Exchange::kRemoteTensors)));

TEST(Engine, FreeOrderEqualsOneProcessUpToTheOrderOfAdditions) {
  std::mt19937 random(13);
  at::manual_seed(13);
  for (int round = 0; round < 20; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    const Model model = random_model(random, Numbers::kReal, ranks, 2 + random() % 7);
    const at::Tensor batch = at::randn({12, kWidth});

    const Exchange exchange = static_cast<Exchange>(round % 3);
    const StepResult split =
        run_split(model, ranks,
                  {.schedule = round % 2 == 0 ? Schedule::kInterleaved : Schedule::kZeroBubble,
                   .active_microbatches = 4},
                  batch, 4, 2, exchange);

    // Four gradients per parameter, summed in another order: a few units in the last place of the
    // largest one.
    expect_same(run_alone(model, batch, 4), split, [](const at::Tensor& a, const at::Tensor& b) {
      return at::allclose(a, b, 1e-5, 1e-6);
    });
  }
}

/// True if all numbers are far from where whole ones stop being exact.
bool exact(const StepResult& result) {
  const auto small = [](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.abs().max().item<double>() < 1e12;
  };
  return std::ranges::all_of(result.losses, small) &&
         std::ranges::all_of(result.weight_grads, small) &&
         std::ranges::all_of(result.bias_grads, small);
}

TEST(Engine, RemoteTensorsComputeTheSameHoweverLateMessagesAre) {
  const uint32_t count = fuzz_rounds(60);
  for (uint32_t seed = 1; seed <= count; ++seed) {
    std::mt19937 random(seed);
    at::manual_seed(seed);
    const int ranks = 2 + static_cast<int>(random() % 3);
    const Model model = random_model(random, Numbers::kWhole, ranks, 2 + random() % 8);
    const int64_t microbatches = int64_t{1} << (random() % 3);
    const at::Tensor batch = random_tensor(Numbers::kWhole, {microbatches * 2, kWidth});
    const ServerOptions options{.schedule = std::array{Schedule::kSimple, Schedule::kInterleaved,
                                                       Schedule::kZeroBubble}[random() % 3],
                                .active_microbatches = static_cast<int64_t>(1 + random() % 5),
                                .memory = std::array{0.3, 1.0, 2.0}[random() % 3],
                                .deterministic = random() % 2 == 0,
                                .timeout = std::chrono::minutes(1)};

    const StepResult alone = run_alone(model, batch, microbatches);
    if (!exact(alone)) continue;

    const StepResult split = run_split(model, ranks, options, batch, microbatches, /*steps=*/3,
                                       Exchange::kRemoteTensors, seed);

    expect_same(alone, split,
                [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace smp::pipeline::testing
