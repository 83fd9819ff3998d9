// SPDX-License-Identifier: Apache-2.0
// Steps of a model: calls of units, here or elsewhere, forward and backward.
#include <sstream>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include "smp_runtime/api/model_core.h"
#include "smp_runtime/api/recomputation.h"
#include "smp_runtime/core/error.h"

namespace smp {
namespace {

using topology::Group;

constexpr const char* kWentBack = "backward";

/// The mean over the microbatches, a scalar of 64 bits, where the losses are; undefined where one
/// is no single number.
at::Tensor loss_of(const Tensors& results) {
  const at::NoGradGuard no_grad;
  Tensors numbers;
  for (const at::Tensor& result : results) {
    if (!result.defined() || result.numel() != 1 || !result.is_floating_point()) return {};
    numbers.push_back(result.reshape({}).to(at::kDouble));
  }
  return numbers.empty() ? at::Tensor() : at::stack(numbers).mean();
}

std::vector<Microbatch> split(const std::vector<at::Tensor>& batch, int count) {
  std::vector<Microbatch> parts(static_cast<std::size_t>(count));
  for (std::size_t index = 0; index < batch.size(); ++index) {
    const at::Tensor& tensor = batch[index];
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) % count != 0) {
      std::ostringstream shape;
      if (tensor.defined()) shape << tensor.sizes();
      throw ConfigError(
          "tensor {} of the batch, of shape {}, does not divide into microbatches={} along its "
          "first dim; change the batch size, or drop the last batch",
          index, tensor.defined() ? shape.str() : "none", count);
    }
    const std::int64_t rows = tensor.size(0) / count;
    for (int part = 0; part < count; ++part) {
      parts[static_cast<std::size_t>(part)].tensors.push_back(tensor.narrow(0, part * rows, rows));
    }
  }
  for (int part = 0; part < count; ++part) parts[static_cast<std::size_t>(part)].index = part;
  return parts;
}

/// Casts tensors of 32 and 64 bits to `narrow`, or those of `narrow` to 32 bits; leaves others.
Tensors cast(Tensors tensors, bool to_narrow, at::ScalarType narrow) {
  for (at::Tensor& tensor : tensors) {
    const at::ScalarType type = tensor.scalar_type();
    if (to_narrow && (type == at::kFloat || type == at::kDouble)) tensor = tensor.to(narrow);
    if (!to_narrow && type == narrow) tensor = tensor.to(at::kFloat);
  }
  return tensors;
}

void check_defined(const Tensors& tensors, std::string_view what, std::string_view whose) {
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    if (tensors[index].defined()) continue;
    throw UserCodeError("{} {} of {} is an undefined tensor", what, index, whose);
  }
}

std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

/// 0 where there is no batch: ranks that serve may be given anything.
std::int64_t samples_in(const Tensors& batch) {
  const bool is_batch = !batch.empty() && batch.front().defined() && batch.front().dim() > 0;
  return is_batch ? batch.front().size(0) : 0;
}

std::string named(std::string_view unit) { return fmt::format("unit \"{}\"", unit); }

}  // namespace

Tensors DistributedModel::Core::run_unit(std::size_t number, const Tensors& inputs) {
  const Unit& unit = units_[number];
  const auto call = [&] {
    if (!unit.recompute || !at::GradMode::is_enabled()) return unit.forward(inputs);
    const auto& parameters = unit.parameters;
    const at::Device place = parameters.empty() ? device() : parameters.front().tensor.device();
    return api::recomputed([&unit](const Tensors& given) { return unit.forward(given); }, inputs,
                           tensors_of(unit.buffers), place, activations_.get(),
                           engine_->microbatch());
  };
  Tensors outputs = state_ ? state_->run(number, call) : call();
  if (outputs.empty()) throw UserCodeError("unit \"{}\" returned no tensor", unit.name);
  check_defined(outputs, "result", named(unit.name));
  return outputs;
}

Tensors DistributedModel::Core::run_segment(const Segment& segment, Tensors values) {
  for (std::size_t unit = segment.first; unit < segment.end; ++unit) {
    values = run_unit(unit, values);
  }
  return values;
}

void DistributedModel::Core::require_step(std::string_view what) const {
  if (engine_->microbatch() >= 0) return;
  throw UserCodeError("{} was called outside a step; call it in the body that smp::step() is given",
                      what);
}

Tensors DistributedModel::Core::call(std::string_view name, const Tensors& inputs) {
  require_step(named(name));
  const std::size_t unit = unit_named(name);
  check_defined(inputs, "argument", named(name));
  if (is_here(unit)) return run_unit(unit, inputs);
  const auto target = static_cast<int64_t>(segments_.size() + unit);
  return engine_->call({{.owner = partition_of(name), .target = target}}, {.tensors = inputs})
      .tensors;
}

Tensors DistributedModel::Core::run_chain(Tensors values) {
  for (std::size_t at = 0; at < segments_.size();) {
    if (segments_[at].owner == partition_) {
      values = run_segment(segments_[at++], std::move(values));
      continue;
    }
    pipeline::Route route;  // one call through all partitions up to the next part that is here
    for (; at < segments_.size() && segments_[at].owner != partition_; ++at) {
      route.push_back({.owner = segments_[at].owner, .target = static_cast<int64_t>(at)});
    }
    values = engine_->call(route, {.tensors = std::move(values)}).tensors;
  }
  return values;
}

Tensors DistributedModel::Core::forward(const Tensors& inputs) {
  require_step("DistributedModel::forward");
  check_defined(inputs, "argument", "DistributedModel::forward");
  const bool is_narrow = computing_type_ != at::ScalarType::Undefined;
  Tensors given = is_narrow ? cast(inputs, true, computing_type_) : inputs;
  Tensors results = forward_ ? forward_(given) : run_chain(std::move(given));
  if (results.empty()) throw UserCodeError("the model's forward returned no tensor");
  check_defined(results, "result", "the model's forward");
  return is_narrow ? cast(std::move(results), false, computing_type_) : results;
}

void DistributedModel::Core::backward(const at::Tensor& loss) {
  require_step("DistributedModel::backward");
  const double scale = steps_ != nullptr ? steps_->loss_scale() : 1.0;
  engine_->backward({loss}, {at::Tensor()}, scale / microbatches_);
  if (state_ && state_->plan().on_demand) state_->store().end_backward();
}

StepOutput DistributedModel::Core::drive(const Step::Body& body,
                                         const std::vector<at::Tensor>& batch, bool& went_back) {
  std::vector<Microbatch> parts;
  StepOutput output;
  output.microbatches.resize(static_cast<std::size_t>(microbatches_));
  // Steps of one kind make the same calls.
  const std::string kind =
      fmt::format("step, gradients {}, {}", at::GradMode::is_enabled(), microbatches_);
  engine_->drive(
      kind, microbatches_,
      [&](int64_t microbatch) {
        // In here, so that other ranks learn of a batch that does not divide.
        if (parts.empty()) parts = split(batch, microbatches_);
        const auto index = static_cast<std::size_t>(microbatch);
        const at::Tensor result = body(parts[index]);
        if (!result.defined()) {
          throw UserCodeError("the body of the step returned no tensor; return its loss");
        }
        output.microbatches[index] = result.detach();
      },
      [&] {
        went_back = engine_->take_backwards() > 0;
        return pipeline::TensorTree{.definition = went_back ? kWentBack : "",
                                    .tensors = output.microbatches};
      });
  return output;
}

StepOutput DistributedModel::Core::serve(bool& went_back) {
  pipeline::TensorTree result = engine_->serve();
  engine_->take_backwards();
  went_back = result.definition == kWentBack;
  return {.microbatches = std::move(result.tensors)};
}

void DistributedModel::Core::begin_step() {
  const bool trains = at::GradMode::is_enabled();
  if (reducer_) reducer_->begin_step(trains);
  if (!state_) return;
  if (steps_ != nullptr) steps_->begin_accumulation();
  state_->store().begin_pass(trains);
  state_->store().begin_step(/*due=*/true, microbatches_);
}

void DistributedModel::Core::finish_backward() {
  if (state_) {
    state_->store().finish_step(/*due=*/true);
    if (steps_ != nullptr) return steps_->begin();
    if (lacked_optimizer_) {
      throw UserCodeError(
          "two steps have gone backward, and nothing updates the model: under these mp_parameters "
          "an optimizer steps 32-bit masters; wrap yours, as in "
          "smp::DistributedOptimizer optimizer(model, torch::optim::SGD(model.parameters(), lr))");
    }
    lacked_optimizer_ = true;
  } else if (reducer_) {
    session::Session& session = session_->session();
    const session::WaitingCall waiting(session.barriers().watch().get(),
                                       "the averaging of gradients", "averaging",
                                       session.groups().ranks(Group::kDp));
    reducer_->average();
  }
}

StepOutput DistributedModel::Core::run(const Step::Body& body, const Tensors& batch) {
  metrics::StepReports& reports = session_->reports();
  reports.begin_step();
  begin_step();
  bool went_back = false;
  StepOutput output = partition_ == 0 ? drive(body, batch, went_back) : serve(went_back);
  const at::Tensor loss = reports.want_loss() ? loss_of(output.microbatches) : at::Tensor();
  if (went_back) {
    finish_backward();
    reports.averaged(loss, device());
  }
  reports.end_step({.pipeline = engine_->group_use(),
                    .messages_sent = engine_->last_step().messages_sent,
                    .bytes_sent = engine_->last_step().bytes_sent},
                   samples_in(batch), loss, went_back);
  return output;
}

}  // namespace smp
