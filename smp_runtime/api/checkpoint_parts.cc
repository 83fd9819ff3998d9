// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/checkpoint_parts.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/api/optimizer_fields.h"
#include "smp_runtime/checkpoint/state/objects.h"
#include "smp_runtime/checkpoint/state/owned_state.h"
#include "smp_runtime/checkpoint/state/saved_state.h"
#include "smp_runtime/core/error.h"

namespace smp::api {
namespace {

using checkpoint::kKindKey;
using checkpoint::kNamesKey;
using checkpoint::kPartialKey;
using checkpoint::list_of;
using checkpoint::new_list;
using checkpoint::ObjectBuilder;
using topology::Group;

/// A copy of its own memory: a file holds all the memory that a tensor shares.
at::Tensor alone(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

/// As PyTorch's optimizers hold it.
c10::IValue step_tensor(double step) { return at::scalar_tensor(step, at::kFloat); }

ObjectBuilder settings_of(const OptimizerFields& fields, torch::optim::OptimizerParamGroup& group) {
  const GroupSettings settings = fields.settings_of(group);
  ObjectBuilder object;
  for (const auto& [key, value] : settings.numbers) object.set(key, value);
  for (const auto& [key, value] : settings.flags) object.set(key, value);
  if (settings.betas) {
    object.set("betas", c10::ivalue::Tuple::create(settings.betas->first, settings.betas->second));
  }
  return object;
}

class Parts {
 public:
  Parts(DistributedModel::Core& model, DistributedOptimizer::Core* optimizer)
      : model_(model),
        optimizer_(optimizer),
        session_(model.session().session()),
        names_(model.units()) {
    const topology::Mesh& mesh = session_.mesh();
    const int rank = session_.ranks().rank;
    replica_ = mesh.rank_in(Group::kRdp, rank);
    part_ = fmt::format("{}_{}", mesh.rank_in(Group::kPp, rank), mesh.rank_in(Group::kTp, rank));
  }

  std::vector<CheckpointPart> made() {
    std::vector<std::vector<std::string>> groups;
    if (optimizer_ != nullptr) groups = names_of_groups();
    if (model_.state() != nullptr) {
      make_sharded(groups);
    } else if (replica_ == 0) {
      parts_.push_back({fmt::format("model_{}.pt", part_), entries(/*whole=*/true)});
      if (optimizer_ != nullptr) {
        parts_.push_back({fmt::format("optimizer_{}.pt", part_), plain_optimizer(groups)});
      }
    }
    return std::move(parts_);
  }

 private:
  /// Names of the parameters of all pipeline stages, by group of the optimizer, in the order of the
  /// model.
  std::vector<std::vector<std::string>> names_of_groups() {
    auto own = nlohmann::json::array();
    for (const auto& group : optimizer_->groups()) {
      auto names = nlohmann::json::array();
      for (const at::Tensor& parameter : group) names.push_back(names_.of(parameter));
      own.push_back(std::move(names));
    }
    const auto told = session_.objects().all_gather("smp::save_checkpoint", Group::kPp, own.dump());
    std::map<std::string, std::size_t> group_of;
    for (const std::string& text : told) {
      const auto groups = nlohmann::json::parse(text);
      if (groups.size() != optimizer_->groups().size()) {
        throw ConfigError(
            "smp::save_checkpoint: the optimizers of pipeline stages have {} and {} groups of "
            "parameters; give all of them the same, some without parameters",
            optimizer_->groups().size(), groups.size());
      }
      for (std::size_t group = 0; group < groups.size(); ++group) {
        for (const auto& name : groups[group]) group_of.emplace(name.get<std::string>(), group);
      }
    }
    std::vector<std::vector<std::string>> groups(optimizer_->groups().size());
    for (const std::string& name : names_.all()) {
      if (const auto found = group_of.find(name); found != group_of.end()) {
        groups[found->second].push_back(name);
      }
    }
    return groups;
  }

  /// Parameters and buffers of this stage, or without `whole` buffers and frozen parameters alone.
  c10::IValue entries(bool whole, const std::vector<at::Tensor>& frozen = {}) const {
    ObjectBuilder object;
    std::map<std::string, at::Tensor> copies;  // readers know by their memory what is tied
    for (std::size_t number = 0; number < model_.units().size(); ++number) {
      if (!model_.is_here(number)) continue;
      const Unit& unit = model_.units()[number];
      for (const auto& [name, parameter] : unit.parameters) {
        if (whole) {
          at::Tensor& copy = copies[names_.of(parameter)];
          if (!copy.defined()) copy = alone(parameter);
          object.set(fmt::format("{}.{}", unit.name, name), copy);
        }
        if (whole || parameter.requires_grad()) continue;
        const int own = model_.state()->number_of(parameter);
        object.set(fmt::format("{}.{}", unit.name, name),
                   own < 0 ? alone(parameter) : frozen.at(static_cast<std::size_t>(own)));
      }
      for (const auto& [name, buffer] : unit.buffers) {
        object.set(fmt::format("{}.{}", unit.name, name), alone(buffer));
      }
    }
    if (whole) object.set(std::string(kPartialKey), true);
    return object.built();
  }

  c10::IValue plain_optimizer(const std::vector<std::vector<std::string>>& groups) const {
    torch::optim::Optimizer& wrapped = optimizer_->wrapped();
    const OptimizerFields& fields = fields_of(wrapped);
    std::map<std::string, std::int64_t> number_of;
    std::vector<std::string> names;
    auto saved_groups = new_list();
    for (std::size_t number = 0; number < groups.size(); ++number) {
      std::vector<std::int64_t> numbers;
      for (const std::string& name : groups[number]) {
        numbers.push_back(static_cast<std::int64_t>(names.size()));
        number_of.emplace(name, numbers.back());
        names.push_back(name);
      }
      ObjectBuilder group = settings_of(fields, wrapped.param_groups().at(number));
      saved_groups.push_back(group.set(std::string("params"), list_of(numbers)).built());
    }
    ObjectBuilder states;
    for (const auto& group : optimizer_->groups()) {
      for (const at::Tensor& parameter : group) {
        const ParameterState state = fields.state_of(wrapped, parameter);
        if (state.empty()) continue;
        ObjectBuilder saved;
        for (const auto& [key, tensor] : state.tensors) saved.set(key, alone(tensor));
        if (state.step) saved.set(std::string("step"), step_tensor(*state.step));
        states.set(number_of.at(names_.of(parameter)), saved.built());
      }
    }
    return ObjectBuilder()
        .set(std::string("state"), states.built())
        .set(std::string("param_groups"), saved_groups)
        .set(std::string(kPartialKey), true)
        .set(std::string(kNamesKey), list_of(names))
        .set(std::string(kKindKey), fields.kind())
        .built();
  }

  // --- Sharded or 16-bit ---

  void make_sharded(const std::vector<std::vector<std::string>>& groups) {
    const ModelState& state = *model_.state();
    const bool on_demand = state.plan().on_demand;
    std::vector<at::Tensor> frozen;
    if (on_demand) frozen = state.whole_values(/*frozen_only=*/true);
    if (replica_ == 0 && on_demand) {
      ObjectBuilder tied;
      for (const auto& [name, first] : names_.tied()) tied.set(name, first);
      ObjectBuilder shapes;  // by this key readers tell that shards have the rest
      for (const at::Tensor& parameter : model_.parameters()) {
        shapes.set(names_.of(parameter), list_of(parameter.sizes()));
      }
      parts_.push_back(
          {"model_0.pt", ObjectBuilder()
                             .set(std::string("module"), entries(/*whole=*/false, frozen))
                             .set(std::string("param_shapes"), shapes.built())
                             .set(std::string("tied"), tied.built())
                             .built()});
    } else if (replica_ == 0) {
      parts_.push_back({fmt::format("model_{}.pt", part_), entries(/*whole=*/true)});
    }
    if (replica_ >= state.plan().degree) return;
    const int index = state.groups().index;
    parts_.push_back({on_demand ? fmt::format("optimizer_{}.pt", index)
                                : fmt::format("optimizer_{}_{}.pt", part_, index),
                      sharded_part(groups)});
  }

  c10::IValue sharded_part(const std::vector<std::vector<std::string>>& groups) {
    ModelState& state = *model_.state();
    checkpoint::OwnedState owned{.store = &state.store(),
                                 .sharers = state.plan().degree,
                                 .shared = state.plan().degree > 1,
                                 .index = state.groups().index,
                                 .names = names_.of_all(state.parameters()),
                                 .shapes = {},
                                 .trained = {},
                                 .optimizers = {}};
    for (const sharding::StoredParameter& parameter : state.parameters()) {
      owned.shapes.push_back(parameter.tensor.sizes().vec());
      owned.trained.push_back(parameter.tensor.requires_grad());
    }
    if (optimizer_ != nullptr) owned.optimizers.push_back(owned_optimizer(groups));
    c10::IValue part = checkpoint::part_for_file(owned);
    if (optimizer_ != nullptr) {
      const sharding::LossScaler::State scale = optimizer_->scaler().state();
      auto saved_scale = new_list();
      saved_scale.push_back(scale.scale);
      saved_scale.push_back(scale.good_steps);
      saved_scale.push_back(scale.patience);
      auto object = part.toGenericDict();
      object.insert("loss_scaler", saved_scale);
      object.insert("optimizer", fields_of(optimizer_->wrapped()).kind());
    }
    return part;
  }

  checkpoint::OwnedOptimizer owned_optimizer(const std::vector<std::vector<std::string>>& groups) {
    torch::optim::Optimizer& wrapped = optimizer_->wrapped();
    const OptimizerFields& fields = fields_of(wrapped);
    checkpoint::OwnedOptimizer owned{
        .masters = optimizer_->masters(), .groups = {}, .members = {}, .state_of = {}};
    for (std::size_t number = 0; number < groups.size(); ++number) {
      ObjectBuilder group = settings_of(fields, wrapped.param_groups().at(number));
      owned.groups.push_back(group.set(std::string("names"), list_of(groups[number])).built());
      std::vector<int> members;
      for (const at::Tensor& parameter : optimizer_->groups().at(number)) {
        const int member = model_.state()->number_of(parameter);
        if (member >= 0) members.push_back(member);
      }
      owned.members.push_back(std::move(members));
    }
    owned.state_of = [&wrapped, &fields](const sharding::MasterRun& run) {
      const ParameterState held = fields.state_of(wrapped, run.parameter);
      std::map<std::string, c10::IValue> state;
      for (const auto& [key, tensor] : held.tensors) state.emplace(key, tensor.cpu());
      if (held.step) state.emplace("step", step_tensor(*held.step));
      return state;
    };
    return owned;
  }

  DistributedModel::Core& model_;
  DistributedOptimizer::Core* const optimizer_;
  session::Session& session_;
  const ParameterNames names_;
  int replica_ = 0;
  std::string part_;  ///< "pp_tp"
  std::vector<CheckpointPart> parts_;
};

}  // namespace

std::vector<CheckpointPart> parts_of(DistributedModel::Core& model,
                                     DistributedOptimizer::Core* optimizer) {
  return Parts(model, optimizer).made();
}

ParameterNames::ParameterNames(const std::vector<Unit>& units) {
  for (const Unit& unit : units) {
    for (const NamedTensor& parameter : unit.parameters) {
      std::string name = fmt::format("{}.{}", unit.name, parameter.name);
      const auto [found, is_new] =
          number_of_.emplace(parameter.tensor.unsafeGetTensorImpl(), names_.size());
      if (is_new) {
        names_.push_back(std::move(name));
      } else {
        tied_.emplace(std::move(name), names_[found->second]);
      }
    }
  }
}

const std::string& ParameterNames::of(const at::Tensor& parameter) const {
  const auto found = number_of_.find(parameter.unsafeGetTensorImpl());
  SMP_CHECK(found != number_of_.end(), "a tensor is no parameter of the model");
  return names_[found->second];
}

std::vector<std::string> ParameterNames::of_all(
    const std::vector<sharding::StoredParameter>& parameters) const {
  std::vector<std::string> names;
  for (const sharding::StoredParameter& parameter : parameters)
    names.push_back(of(parameter.tensor));
  return names;
}

}  // namespace smp::api
