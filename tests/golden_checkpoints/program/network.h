// SPDX-License-Identifier: Apache-2.0
// The model of golden checkpoints, and its optimizer: that of tests/mpi/jobs/golden_jobs.py.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <smp/smp.h>
#include <torch/torch.h>

namespace golden {

namespace nn = torch::nn;

/// A frozen parameter, and a count of samples.
struct ScaleImpl : nn::Module {
  explicit ScaleImpl(int64_t width)
      : weight(register_parameter("weight", torch::ones({width}), /*requires_grad=*/false)),
        seen(register_buffer("seen", torch::zeros({}, torch::kInt64))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    seen += x.size(0);
    return x * weight;
  }

  torch::Tensor weight, seen;
};
TORCH_MODULE(Scale);

inline torch::Tensor integers(int64_t low, int64_t high, at::IntArrayRef shape, int64_t seed) {
  auto generator = torch::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return torch::randint(low, high, shape, generator, torch::kInt64);
}

inline nn::Sequential network() {
  nn::Linear shared(nn::LinearOptions(3, 3).bias(false));
  nn::Sequential net(nn::Embedding(5, 4), nn::Linear(4, 6), Scale(6), nn::Linear(6, 3), shared,
                     shared, nn::Linear(3, 1));
  const torch::NoGradGuard no_grad;
  int64_t number = 0;
  for (const auto& named : net->named_parameters()) {
    if (named.key().starts_with("5.")) continue;  // has its values under its first name
    named.value().detach().copy_(integers(-16, 17, named.value().sizes(), number++) / 16);
  }
  return net;
}

/// Weights, and biases with twice the rate.
template <typename Options>
std::vector<torch::optim::OptimizerParamGroup> groups_of(const std::vector<smp::Unit>& units,
                                                         const smp::DistributedModel& model,
                                                         const Options& options) {
  std::vector<std::vector<torch::Tensor>> parameters(2);
  for (const torch::Tensor& parameter : model.parameters()) {
    bool is_bias = false;
    for (const smp::Unit& unit : units) {
      for (const auto& [name, tensor] : unit.parameters) {
        is_bias = is_bias || (name == "bias" && tensor.is_same(parameter));
      }
    }
    parameters[is_bias ? 1 : 0].push_back(parameter);
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (std::size_t group = 0; group < 2; ++group) {
    auto own = std::make_unique<Options>(options);
    own->lr(options.lr() * static_cast<double>(group + 1));
    groups.emplace_back(parameters[group], std::move(own));
  }
  return groups;
}

/// SGD with momentum, or AdamW where `kind` says so.
inline std::unique_ptr<torch::optim::Optimizer> optimizer_of(const std::vector<smp::Unit>& units,
                                                             const smp::DistributedModel& model,
                                                             const std::string& kind, double rate) {
  if (kind == "SGD") {
    const auto options = torch::optim::SGDOptions(rate).momentum(0.75);
    return std::make_unique<torch::optim::SGD>(groups_of(units, model, options), options);
  }
  const torch::optim::AdamWOptions options(rate);
  return std::make_unique<torch::optim::AdamW>(groups_of(units, model, options), options);
}

/// Loss of a microbatch: token numbers, and a factor of each sample.
inline torch::Tensor trained_loss(smp::DistributedModel& model, const smp::Microbatch& in) {
  const torch::Tensor difference =
      model.forward(in[0]).to(torch::kFloat) - in[0].remainder(3).unsqueeze(-1);
  const torch::Tensor loss = (difference * difference).mean() * in[1].mean();
  model.backward(loss);
  return loss;
}

}  // namespace golden
