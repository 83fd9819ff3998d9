// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/model_state.h"

#include <cstdint>
#include <set>
#include <string>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

namespace smp::api {
namespace {

void narrow_buffers(const Unit& unit, at::ScalarType type) {
  for (auto [name, buffer] : unit.buffers) {
    if (buffer.is_floating_point()) buffer.set_data(buffer.to(type));
  }
}

}  // namespace

ModelState::ModelState(session::Session& session, const sharding::ShardPlan& plan,
                       const std::map<std::size_t, const Unit*>& units)
    : plan_(plan), groups_(sharding::make_shard_groups(session, plan)) {
  std::vector<std::string> names;
  std::int64_t elements = 0;
  for (const auto& [number, unit] : units) {
    for (const auto& [name, parameter] : unit->parameters) {
      if (!parameter.is_floating_point() || number_of(parameter) >= 0) continue;
      number_of_.emplace(parameter.unsafeGetTensorImpl(), static_cast<int>(parameters_.size()));
      parameters_.push_back({.tensor = parameter,
                             .name = fmt::format("{}.{}", unit->name, name),
                             .block = static_cast<int>(names.size())});
      elements += parameter.numel();
    }
    names.push_back(unit->name);
  }
  store_ = std::make_unique<sharding::ParameterStore>(
      sharding::store_options(session, plan_, groups_, elements), parameters_, std::move(names));
  const auto unit_of = store_->unit_of_parameters();
  const auto type = sharding::computing_type(session.config());
  for (const auto& [number, unit] : units) {
    if (type != at::ScalarType::Undefined) narrow_buffers(*unit, type);
    if (!plan_.on_demand) continue;
    std::set<int> needed;
    for (const auto& [name, parameter] : unit->parameters) {
      const int own = number_of(parameter);
      if (own < 0) continue;
      const int of = unit_of[static_cast<std::size_t>(own)];
      if (!store_->layouts()[static_cast<std::size_t>(of)].persistent) needed.insert(of);
    }
    gathered_[number].assign(needed.begin(), needed.end());
  }
}

int ModelState::number_of(const at::Tensor& parameter) const {
  const auto found = number_of_.find(parameter.unsafeGetTensorImpl());
  return found == number_of_.end() ? -1 : found->second;
}

std::vector<at::Tensor> ModelState::whole_values(bool frozen_only) const {
  std::vector<at::Tensor> values(parameters_.size());
  const auto& layouts = store_->layouts();
  for (std::size_t unit = 0; unit < layouts.size(); ++unit) {
    const auto first = static_cast<std::size_t>(layouts[unit].parameters.front().parameter);
    if (frozen_only && parameters_[first].tensor.requires_grad()) continue;
    const std::vector<at::Tensor> whole =
        store_->whole_unit(static_cast<int>(unit), store_->masters());
    for (std::size_t index = 0; index < whole.size(); ++index) {
      values.at(static_cast<std::size_t>(layouts[unit].parameters[index].parameter)) = whole[index];
    }
  }
  return values;
}

Tensors ModelState::run(std::size_t unit, const std::function<Tensors()>& call) {
  if (!plan_.on_demand) return call();
  store_->enter(gathered_.at(unit));
  Tensors outputs;
  try {
    outputs = call();
  } catch (...) {
    store_->leave({}, /*failed=*/true);
    throw;
  }
  store_->leave(at::GradMode::is_enabled() ? outputs : Tensors(), /*failed=*/false);
  return outputs;
}

}  // namespace smp::api
