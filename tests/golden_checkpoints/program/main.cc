// SPDX-License-Identifier: Apache-2.0
// Saves what a C++ program trains, of the same model, batches and optimizer as
// tests/mpi/jobs/golden_jobs.py: golden FOLDER SETTINGS AdamW|SGD
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <smp/smp.h>
#include <torch/torch.h>

namespace nn = torch::nn;

constexpr int64_t kSteps = 3;

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

torch::Tensor integers(int64_t low, int64_t high, at::IntArrayRef shape, int64_t seed) {
  auto generator = torch::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return torch::randint(low, high, shape, generator, torch::kInt64);
}

nn::Sequential network() {
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

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string settings = argv[2];
  smp::Session session = smp::Session::from_settings(settings);
  const std::vector<smp::Unit> units = smp::units_of(network());
  smp::DistributedModel::Options placed;
  if (session.pp_size() > 1) placed.partition = {{"3", 1}, {"4", 1}, {"5", 1}, {"6", 1}};
  smp::DistributedModel model(session, units, placed);
  std::unique_ptr<torch::optim::Optimizer> inner;
  if (std::string(argv[3]) == "SGD") {
    const auto options = torch::optim::SGDOptions(0.125).momentum(0.75);
    inner = std::make_unique<torch::optim::SGD>(groups_of(units, model, options), options);
  } else {
    const torch::optim::AdamWOptions options(0.125);
    inner = std::make_unique<torch::optim::AdamW>(groups_of(units, model, options), options);
  }
  smp::DistributedOptimizer optimizer(model, std::move(inner), {.scale = 64, .window = 4});
  auto train = smp::step(model, [&](const smp::Microbatch& in) {
    const torch::Tensor difference =
        model.forward(in[0]).to(torch::kFloat) - in[0].remainder(3).unsqueeze(-1);
    const torch::Tensor loss = (difference * difference).mean() * in[1].mean();
    model.backward(loss);
    return loss;
  });
  const bool scaled = settings.find("fp16") != std::string::npos;
  for (int64_t step = 0; step < kSteps; ++step) {
    const torch::Tensor ids = integers(0, 5, {4, 2}, 100 * step + session.dp_rank());
    const float factor = scaled && step == 1 ? std::numeric_limits<float>::infinity() : 1.0F;
    optimizer.zero_grad();
    train(ids, torch::full({4}, factor));
    optimizer.step();
  }
  c10::impl::GenericList names(c10::AnyType::get());
  for (const char* name : {"a", "b"}) names.push_back(std::string(name));
  c10::impl::GenericDict content(c10::StringType::get(), c10::AnyType::get());
  content.insert(std::string("steps"), kSteps);
  content.insert(std::string("names"), names);
  content.insert(std::string("rate"), 0.5);
  content.insert(std::string("order"), torch::tensor({2, 0, 1}, torch::kInt64));
  smp::save_checkpoint(session, argv[1], model,
                       {.tag = "golden", .optimizer = &optimizer, .user_content = content});
}
