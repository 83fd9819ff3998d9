// SPDX-License-Identifier: Apache-2.0
// The making of a model: units on partitions, equal replicas, masters, the engine.
#include "smp_runtime/api/model_core.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include <ATen/DeviceAccelerator.h>

#include "smp_runtime/api/unit_placement.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/ddp/broadcast.h"
#include "smp_runtime/metrics/process_memory.h"
#include "smp_runtime/pipeline/session/session_engine.h"

namespace smp {
namespace {

using topology::Group;

std::string line_of(std::istringstream& text) {
  std::string line;
  std::getline(text, line);
  return line.empty() ? "nothing" : line;
}

}  // namespace

DistributedModel::Core::Core(std::shared_ptr<Session::Core> session, Graph graph,
                             const Options& options)
    : session_(std::move(session)),
      units_(std::move(graph.units)),
      forward_(std::move(graph.forward)),
      partition_(session_->index(Group::kPp)),
      microbatches_(static_cast<int>(session_->config().microbatches)),
      key_(fmt::format("model/{}", session_->count_model())),
      computing_type_(sharding::computing_type(session_->config())) {
  const int ranks = session_->session().ranks().size;
  if (const auto refusal = topology::refusal_to_wrap(session_->config(), ranks)) {
    throw ConfigError(*refusal);
  }
  // The program makes its own tensors there, and the peak of memory is told of it.
  if (const at::Device own = device(); own.is_cuda()) at::accelerator::setDeviceIndex(own.index());
  place(options);
  compare_units();
  align_replicas();
  keep_state(options);
  start_engine();
  session_->reports().set_memory(this, {.ledger = [this] { return memory(); },
                                        .formula = [this] { return state_by_formula(); }});
}

DistributedModel::Core::~Core() { session_->reports().forget_memory(this); }

void DistributedModel::Core::place(const Options& options) {
  session::Session& session = session_->session();
  partition::JobModel job{.replicas = session_->count(Group::kRdp)};
  if (session_->count(Group::kPp) > 1) {  // partitioned alike on all ranks, for rank 0's GPU
    const std::string own = std::to_string(metrics::memory_of(device()));
    job.device_bytes = std::stoll(session.told_by_first(key_ + "/device_bytes", own));
  }
  api::Placement placed = api::place_units(units_, !forward_, options.partition, session_->config(),
                                           session.options().partitioner, job);
  assignment_ = placed.partition.assignment;
  if (session_->count(Group::kPp) > 1) {
    metrics::tell_partition(session, placed.partition, placed.tree);
    const std::string& warning = placed.partition.warning;
    if (!warning.empty() && session.ranks().rank == 0) SMP_LOG(warning, "{}", warning);
  }
  for (std::size_t index = 0; index < units_.size(); ++index) {
    const int owner = assignment_.at(units_[index].name);
    if (segments_.empty() || segments_.back().owner != owner) {
      segments_.push_back({.owner = owner, .first = index, .end = index});
    }
    segments_.back().end = index + 1;
    if (owner != partition_) continue;
    for (const auto& [name, parameter] : units_[index].parameters) {
      const bool is_known = std::ranges::any_of(
          parameters_,
          [&, &own = parameter](const at::Tensor& known) { return known.is_same(own); });
      if (!is_known) parameters_.push_back(parameter);
    }
    for (const auto& [name, buffer] : units_[index].buffers) buffers_.push_back(buffer);
  }
}

/// Ranks with different models would wait for each other for ever, or train nonsense.
void DistributedModel::Core::compare_units() {
  session::Session& session = session_->session();
  const std::string mine = api::units_text(units_) + assignment_.to_json();
  const std::string first = session.told_by_first(key_, mine);
  if (first == mine) return;
  std::istringstream here(mine);
  std::istringstream there(first);
  for (int unit = 0;; ++unit) {
    const std::string ours = line_of(here);
    const std::string theirs = line_of(there);
    if (ours == theirs) continue;
    throw ConfigError(
        "rank {} and rank 0 make different models: unit {} is {} here and {} there; make the same "
        "units on all ranks",
        session.ranks().rank, unit, ours, theirs);
  }
}

void DistributedModel::Core::align_replicas() {
  if (!session_->replicates() || parameters_.empty()) return;
  session::Session& session = session_->session();
  const auto& watch = session.barriers().watch();
  const std::string group = session.groups().internal_group(Group::kDp)->getGroupName();
  std::vector<at::Tensor> values = buffers_;
  values.insert(values.end(), parameters_.begin(), parameters_.end());
  for (at::Tensor& value : values) value = value.detach();
  ddp::broadcast_tensors(group, values, 0, /*may_join=*/false, watch.get());
}

void DistributedModel::Core::keep_state(const Options& options) {
  session::Session& session = session_->session();
  const auto& config = session_->config();
  if (const auto plan = sharding::plan_shards(config, session.mesh())) {
    std::map<std::size_t, const Unit*> own;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      if (is_here(unit)) own.emplace(unit, &units_[unit]);
    }
    state_ = std::make_unique<api::ModelState>(session, *plan, own);
    return;
  }
  if (!session_->replicates() || parameters_.empty()) return;
  reducer_ = std::make_unique<ddp::GradientReducer>(
      ddp::GradientReducer::Options{
          .group_name = session.groups().internal_group(Group::kDp)->getGroupName(),
          .bucket_bytes = options.bucket_bytes,
          // A fixed order of work leaves no room for an order by readiness.
          .overlap = config.overlapping_allreduce && !config.deterministic_server,
          .may_join = false,
          .watch = session.barriers().watch(),
          .recorder = session.recorder()},
      parameters_);
}

void DistributedModel::Core::start_engine() {
  const auto& config = session_->config();
  if (config.offload_activations) {
    if (std::ranges::none_of(units_, &Unit::recompute)) {
      throw ConfigError(
          "mp_parameters: offload_activations moves what units with `recompute` keep, and no unit "
          "has that; set it for some, or leave the parameter out");
    }
    activations_ = std::make_unique<pipeline::ActivationStore>(
        pipeline::ActivationStore::Options{.horizon = config.activation_loading_horizon});
  }
  const at::Device device = this->device();
  engine_ = pipeline::make_engine(
      session_->session(),
      {.server = {.target_name =
                      [this](int64_t target) { return units_[segment_of(target).first].name; }},
       .run_module =
           [this](int64_t target, pipeline::TensorTree arguments, bool /*passes_on*/) {
             return pipeline::TensorTree{
                 .tensors = run_segment(segment_of(target), std::move(arguments.tensors))};
           },
       .device = device.is_cpu() ? std::nullopt : std::optional(device),
       .memory_in_use = [this] { return memory_in_use(); }});
  engine_->track_parameters(parameters_);
}

int DistributedModel::Core::partition_of(std::string_view unit) const {
  const auto found = assignment_.partition_of.find(std::string(unit));
  if (unit.empty() || found == assignment_.partition_of.end()) {
    throw ConfigError("DistributedModel: no unit is named \"{}\"", unit);
  }
  return found->second;
}

std::vector<NamedTensor> DistributedModel::Core::local_state() const {
  std::vector<at::Tensor> whole;
  if (state_) whole = state_->whole_values();
  std::vector<NamedTensor> all;
  const auto add = [&](const Unit& unit, const NamedTensor& named) {
    const int number = state_ ? state_->number_of(named.tensor) : -1;
    all.push_back({fmt::format("{}.{}", unit.name, named.name),
                   number < 0 ? named.tensor.detach().cpu().clone()
                              : whole.at(static_cast<std::size_t>(number))});
  };
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!is_here(unit)) continue;
    for (const NamedTensor& parameter : units_[unit].parameters) add(units_[unit], parameter);
    for (const NamedTensor& buffer : units_[unit].buffers) add(units_[unit], buffer);
  }
  return all;
}

void DistributedModel::Core::attach_optimizer(sharding::MixedPrecisionSteps& steps) {
  if (steps_ != nullptr) {
    throw ConfigError(
        "smp::DistributedOptimizer: the model has an optimizer already, which steps its masters; "
        "end that first, or give one optimizer several groups of parameters");
  }
  steps_ = &steps;
}

void DistributedModel::Core::detach_optimizer() { steps_ = nullptr; }

Segment DistributedModel::Core::segment_of(int64_t target) const {
  const auto number = static_cast<std::size_t>(target);
  if (number < segments_.size()) return segments_[number];
  const std::size_t unit = number - segments_.size();
  SMP_CHECK(unit < units_.size(), "call of target {} of {}", number, segments_.size());
  return {.owner = partition_, .first = unit, .end = unit + 1};
}

bool DistributedModel::Core::is_here(std::size_t unit) const {
  return assignment_.at(units_[unit].name) == partition_;
}

std::size_t DistributedModel::Core::unit_named(std::string_view name) const {
  const auto found = std::ranges::find(units_, name, &Unit::name);
  if (found == units_.end()) {
    throw UserCodeError("DistributedModel::call: no unit is named \"{}\"", name);
  }
  return static_cast<std::size_t>(found - units_.begin());
}

}  // namespace smp
