// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/cost_tree.h"

#include <algorithm>
#include <cmath>

namespace smp::planner {
namespace {

bool computes_in_16_bits(const ModelProfile& model, const Candidate& candidate) {
  return candidate.is_narrow() || model.element_bytes == 2;
}

std::int64_t whole(double amount) { return static_cast<std::int64_t>(std::ceil(amount)); }

class Pricing {
 public:
  Pricing(const ModelProfile& model, const Machines& machines, const Candidate& candidate)
      : device_(machines.device),
        microbatch_(1.0 / static_cast<double>(candidate.config.microbatches)),
        bytes_(activation_share(model, candidate)),
        tensor_ranks_(static_cast<double>(candidate.config.tensor_parallel_degree)),
        split_(split_share(candidate)),
        flops_(computes_in_16_bits(model, candidate) && device_.flops_16 > 0 ? device_.flops_16
                                                                             : device_.flops_32) {}

  /// Forward of one microbatch [s], by the roofline of each operation.
  [[nodiscard]] double forward_seconds(const ProfiledModule& profiled) const {
    const double share = profiled.is_split ? split_ : 1;
    const double held = profiled.is_split ? 1 / tensor_ranks_ : 1;
    double sum = 0;
    for (const Work& work : profiled.work) {
      const double bytes =
          (work.bytes * microbatch_ * share + work.parameter_bytes * held) * bytes_;
      const double computing =
          std::max(work.flops * microbatch_ * share / flops_, bytes / device_.bytes_per_second);
      // A GPU computes while the interpreter starts the next operations; a CPU is both.
      const double each = device_.is_gpu ? std::max(computing, device_.operation_seconds)
                                         : computing + device_.operation_seconds;
      sum += static_cast<double>(work.count) * each;
    }
    return sum;
  }

  /// Seconds that a backward takes to add gradients to those of earlier microbatches, or to write
  /// the first ones: what reads and writes of so many bytes of parameters take.
  [[nodiscard]] double accumulating_seconds(double parameter_bytes) const {
    const double passes = microbatch_ < 1 ? 3 : 1;
    return passes * parameter_bytes / device_.bytes_per_second;
  }

  /// Of activations of one microbatch on one rank.
  [[nodiscard]] std::int64_t bytes(std::int64_t of_batch, bool is_split) const {
    return whole(static_cast<double>(of_batch) * microbatch_ * bytes_ * (is_split ? split_ : 1));
  }

  /// Tensor ranks have each other's batches within a region, unless they are given the same one.
  [[nodiscard]] double exchanged(std::int64_t of_batch) const {
    return static_cast<double>(of_batch) * microbatch_ * bytes_ * split_ * tensor_ranks_;
  }

 private:
  const Device& device_;
  double microbatch_;
  double bytes_;
  double tensor_ranks_;
  double split_;
  double flops_;
};

/// Forwards that a module's step takes.
double forwards(const Recomputation& how, std::size_t module) {
  return 1 + kBackwards + (how.recomputed[module] ? 1 : 0);
}

/// Bytes of the parameters that a module has by itself, and trains, on one tensor rank.
double trained_bytes(const ModelProfile& model, const Candidate& candidate,
                     const ProfiledModule& module) {
  double sum = 0;
  for (const int number : module.module.parameters) {
    const ProfiledParameter& parameter = model.parameters[static_cast<std::size_t>(number)];
    const auto held = parameter.is_split ? candidate.config.tensor_parallel_degree : 1;
    if (parameter.trains) {
      sum += static_cast<double>(parameter.bytes) / static_cast<double>(held);
    }
  }
  return sum;
}

}  // namespace

double activation_share(const ModelProfile& model, const Candidate& candidate) {
  const bool narrows = model.element_bytes == 4 && candidate.is_narrow();
  return narrows ? 0.5 : 1;
}

double split_share(const Candidate& candidate) {
  return candidate.config.prescaled_batch
             ? 1.0 / static_cast<double>(candidate.config.tensor_parallel_degree)
             : 1;
}

double microbatch_seconds(const ModelProfile& model, const Machines& machines,
                          const Candidate& candidate) {
  const Pricing pricing(model, machines, candidate);
  const Recomputation& how = recomputation_of(model, candidate);
  double sum = 0;
  for (std::size_t number = 0; number < model.modules.size(); ++number) {
    const ProfiledModule& module = model.modules[number];
    sum += forwards(how, number) * pricing.forward_seconds(module) +
           pricing.accumulating_seconds(trained_bytes(model, candidate, module));
  }
  return sum;
}

CostTree make_cost_tree(const ModelProfile& model, const Machines& machines,
                        const Candidate& candidate) {
  const Pricing pricing(model, machines, candidate);
  const Recomputation& how = recomputation_of(model, candidate);
  const Recomputation* const none = model.without_recomputation();
  CostTree result;
  for (const ProfiledParameter& parameter : model.parameters) {
    const auto held = parameter.is_split ? candidate.config.tensor_parallel_degree : 1;
    result.tree.add_parameter(parameter.name, parameter.bytes / held);
  }
  for (std::size_t number = 0; number < model.modules.size(); ++number) {
    const ProfiledModule& profiled = model.modules[number];
    const double forward = pricing.forward_seconds(profiled);
    const double accumulating =
        pricing.accumulating_seconds(trained_bytes(model, candidate, profiled));
    result.plain_seconds += (1 + kBackwards) * forward + accumulating;
    const double third = forward + accumulating / (1 + kBackwards);
    partition::Module module = profiled.module;
    module.time_ns = whole(third * 1e9);
    if (how.recomputed[number]) {
      module.recompute_ns = whole(forward * 1e9);
      const auto all = none == nullptr ? 0 : none->kept_bytes[number];
      module.recomputed_bytes = pricing.bytes(all, profiled.is_split);
    }
    module.activation_bytes = pricing.bytes(how.kept_bytes[number], profiled.is_split);
    module.input_bytes = pricing.bytes(module.input_bytes, false);
    module.output_bytes = pricing.bytes(module.output_bytes, false);
    if (candidate.config.tensor_parallel_degree > 1 && profiled.exchanged_bytes > 0) {
      result.exchanged_bytes += pricing.exchanged(profiled.exchanged_bytes);
      ++result.exchanges;
    }
    result.tree.add_module(std::move(module), profiled.parent);
  }
  for (const partition::Tensor& tensor : model.tensors) {
    partition::Tensor own = tensor;
    own.bytes = pricing.bytes(tensor.bytes, false);
    result.tree.add_tensor(std::move(own));
  }
  return result;
}

}  // namespace smp::planner
