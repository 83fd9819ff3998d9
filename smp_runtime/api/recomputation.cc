// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/recomputation.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "smp_runtime/pipeline/engine/call_body.h"

namespace smp::api {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Generators of random numbers, each with what it held then.
using RandomState = std::vector<std::pair<at::Generator, at::Tensor>>;

at::Tensor state_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

/// State of the generators of the CPU and of `device`.
RandomState random_state(at::Device device) {
  RandomState state;
  const auto add = [&](at::Device of) {
    at::Generator generator = at::globalContext().defaultGenerator(of);
    at::Tensor held = state_of(generator);
    state.emplace_back(std::move(generator), std::move(held));
  };
  add(at::kCPU);
  if (!device.is_cpu()) add(device);
  return state;
}

/// The random numbers of another time, until its end.
class RandomNumbersOf {
 public:
  explicit RandomNumbersOf(const RandomState& then) {
    for (auto [generator, state] : then) now_.emplace_back(generator, state_of(generator));
    for (auto [generator, state] : then) set(generator, state);
  }
  ~RandomNumbersOf() {
    for (auto& [generator, state] : now_) set(generator, state);
  }
  RandomNumbersOf(const RandomNumbersOf&) = delete;
  RandomNumbersOf& operator=(const RandomNumbersOf&) = delete;

 private:
  static void set(at::Generator& generator, const at::Tensor& state) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }

  RandomState now_;
};

/// Restores the present values of tensors when it ends.
class ValuesKept {
 public:
  explicit ValuesKept(const std::vector<at::Tensor>& tensors) : tensors_(tensors) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& tensor : tensors_) values_.push_back(tensor.clone());
  }
  ~ValuesKept() {
    const at::NoGradGuard no_grad;
    for (std::size_t index = 0; index < values_.size(); ++index) {
      tensors_[index].copy_(values_[index]);
    }
  }
  ValuesKept(const ValuesKept&) = delete;
  ValuesKept& operator=(const ValuesKept&) = delete;

 private:
  const std::vector<at::Tensor>& tensors_;
  std::vector<at::Tensor> values_;
};

/// A call between its forward and its backward.
struct Region : torch::CustomClassHolder {
  struct Input {
    at::Tensor tensor;  ///< undefined while it is stored
    std::shared_ptr<pipeline::ActivationStore::Handle> stored;
    bool requires_grad = false;
  };

  std::function<Tensors(const Tensors&)> call;
  std::vector<Input> inputs;
  std::vector<at::Tensor> buffers;
  RandomState random;
  pipeline::CallModes modes = pipeline::CallModes::current();

  void keep(const Tensors& given, pipeline::ActivationStore* store, std::int64_t microbatch) {
    for (const at::Tensor& tensor : given) {
      Input input{.tensor = tensor.detach(), .stored = {}, .requires_grad = tensor.requires_grad()};
      if (store != nullptr) input.stored = store->put(input.tensor, microbatch);
      if (input.stored) input.tensor = at::Tensor();
      inputs.push_back(std::move(input));
    }
  }

  /// Leaves, once.
  Tensors take() {
    Tensors taken;
    for (Input& input : std::exchange(inputs, {})) {
      at::Tensor tensor = input.stored ? input.stored->take() : std::move(input.tensor);
      taken.push_back(tensor.detach().set_requires_grad(input.requires_grad));
    }
    return taken;
  }
};

struct RecomputedCall : torch::autograd::Function<RecomputedCall> {
  static variable_list forward(AutogradContext* context, const at::Tensor& /*anchor*/,
                               at::TensorList inputs, const c10::intrusive_ptr<Region>* region) {
    Tensors outputs = (*region)->call(inputs.vec());
    context->set_materialize_grads(false);
    context->saved_data["region"] =
        c10::IValue::make_capsule(c10::intrusive_ptr<torch::CustomClassHolder>(*region));
    variable_list constants;
    for (const at::Tensor& output : outputs) {
      if (!output.is_floating_point()) constants.push_back(output);
    }
    context->mark_non_differentiable(constants);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto capsule = context->saved_data["region"].toCapsule();
    auto* region = static_cast<Region*>(capsule.get());
    const Tensors inputs = region->take();
    {
      // To the end of the backward, which reads buffers that the forward used.
      const ValuesKept buffers(region->buffers);
      Tensors outputs;
      {
        const RandomNumbersOf then(region->random);
        const pipeline::CallModes::Guard modes(region->modes);
        outputs = region->call(inputs);
      }
      variable_list roots;
      variable_list seeds;
      for (std::size_t index = 0; index < outputs.size(); ++index) {
        if (!gradients.at(index).defined() || !outputs[index].requires_grad()) continue;
        roots.push_back(outputs[index]);
        seeds.push_back(gradients[index]);
      }
      if (!roots.empty()) torch::autograd::backward(roots, seeds);
    }
    variable_list results{at::Tensor()};  // the anchor
    for (const at::Tensor& input : inputs) results.push_back(input.grad());
    results.emplace_back();  // the region
    return results;
  }
};

}  // namespace

Tensors recomputed(std::function<Tensors(const Tensors&)> call, const Tensors& inputs,
                   std::vector<at::Tensor> buffers, at::Device device,
                   pipeline::ActivationStore* store, std::int64_t microbatch) {
  auto region = c10::make_intrusive<Region>();
  region->call = std::move(call);
  region->buffers = std::move(buffers);
  region->random = random_state(device);
  region->keep(inputs, store, microbatch);
  // Parameters are no inputs: without an input of which a gradient is wanted there would be none.
  const at::Tensor anchor = at::empty({0}).set_requires_grad(true);
  return RecomputedCall::apply(anchor, at::TensorList(inputs), &region);
}

}  // namespace smp::api
