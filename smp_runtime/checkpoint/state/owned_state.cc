// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/owned_state.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/real.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/ScalarType.h>

#include "smp_runtime/checkpoint/state/objects.h"
#include "smp_runtime/checkpoint/state/saved_state.h"

namespace smp::checkpoint {
namespace {

using sharding::MasterRun;
using sharding::OwnedPiece;

/// An entry of a part: one parameter.
struct Entry {
  std::int64_t start = 0;
  at::Tensor master;
  std::int64_t master_start = -1;  ///< -1: `start`
  ObjectBuilder state;
  ObjectBuilder scalars;
};

using Entries = std::map<int, Entry>;  // by parameter

c10::IValue tuple_of(const std::vector<std::int64_t>& numbers) {
  return c10::ivalue::Tuple::create(std::vector<c10::IValue>(numbers.begin(), numbers.end()));
}

void add_states(const OwnedOptimizer& optimizer, Entries& entries) {
  for (const MasterRun& run : optimizer.masters->runs()) {
    for (const auto& [key, value] : optimizer.state_of(run)) {
      const bool each = value.isTensor() && value.toTensor().sizes() == run.parameter.sizes();
      for (const OwnedPiece& piece : run.pieces) {
        Entry& entry = entries.at(piece.parameter);
        if (each) {
          entry.state.set(key, run.slice_of(piece, value.toTensor()));
        } else {
          entry.scalars.set(key, value);
        }
      }
    }
  }
}

Entries entries_of(const OwnedState& owned, const std::vector<at::Tensor>& masters) {
  Entries entries;
  for (const OwnedPiece& piece : owned.store->pieces()) {
    Entry& entry = entries[piece.parameter];
    entry.start = piece.start;
    entry.master =
        masters.at(static_cast<std::size_t>(piece.arena)).narrow(0, piece.offset, piece.elements);
  }
  for (const OwnedOptimizer& optimizer : owned.optimizers) add_states(optimizer, entries);
  return entries;
}

ObjectBuilder part_of(const OwnedState& owned, const Entries& entries,
                      const std::vector<at::Tensor>& flat_groups) {
  ObjectBuilder parameters;
  for (const auto& [number, entry] : entries) {
    const auto at = static_cast<std::size_t>(number);
    ObjectBuilder object;
    object.set(std::string("shape"), tuple_of(owned.shapes.at(at)))
        .set(std::string("start"), entry.start)
        .set(std::string("state"), entry.state.built())
        .set(std::string("scalars"), entry.scalars.built());
    if (entry.master.defined()) object.set(std::string(kMaster), entry.master);
    if (entry.master_start >= 0) object.set(std::string("master_start"), entry.master_start);
    parameters.set(owned.names.at(at), object.built());
  }
  std::vector<c10::IValue> groups;
  for (const OwnedOptimizer& one : owned.optimizers) {
    groups.insert(groups.end(), one.groups.begin(), one.groups.end());
  }
  return ObjectBuilder()
      .set(std::string("partition_count"), std::int64_t{owned.sharers})
      .set(std::string("shared"), owned.shared)
      .set(std::string("rank"), std::int64_t{owned.index})
      .set(std::string("parameters"), parameters.built())
      .set(std::string("fp32_flat_groups"), list_of(flat_groups))
      .set(std::string("param_groups"), list_of(groups));
}

/// Parameters of each group, and behind them the trained ones that are in no group.
std::vector<std::vector<int>> groups_for_file(const OwnedState& owned) {
  std::vector<std::vector<int>> groups;
  for (const OwnedOptimizer& one : owned.optimizers) {
    groups.insert(groups.end(), one.members.begin(), one.members.end());
  }
  if (owned.optimizers.empty()) {
    std::vector<int> all(owned.names.size());
    std::iota(all.begin(), all.end(), 0);
    groups.push_back(std::move(all));
  }
  std::set<int> grouped;
  for (const auto& group : groups) grouped.insert(group.begin(), group.end());
  std::vector<int> rest;
  for (int number = 0; number < static_cast<int>(owned.names.size()); ++number) {
    if (owned.trained.at(static_cast<std::size_t>(number)) && !grouped.contains(number)) {
      rest.push_back(number);
    }
  }
  groups.push_back(std::move(rest));
  return groups;
}

/// One that holds the masters of all of them.
at::ScalarType common_type(const sharding::ParameterStore& store, const std::vector<int>& group) {
  if (group.empty()) return at::kFloat;
  at::ScalarType type = store.master_type(group.front());
  for (const int number : group) type = c10::promoteTypes(type, store.master_type(number));
  return type;
}

}  // namespace

c10::IValue part_of_rank(const OwnedState& owned) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> masters = owned.store->masters();
  std::vector<at::Tensor> flat;
  for (const OwnedOptimizer& one : owned.optimizers) {
    for (at::Tensor& group : one.masters->flat_groups()) flat.push_back(std::move(group));
  }
  return part_of(owned, entries_of(owned, masters), flat.empty() ? masters : flat).built();
}

c10::IValue part_for_file(const OwnedState& owned) {
  const at::NoGradGuard no_grad;
  Entries entries = entries_of(owned, owned.store->masters());
  std::vector<at::Tensor> flat_groups;
  std::vector<int> numbers;
  std::vector<at::Tensor> targets;
  for (const std::vector<int>& group : groups_for_file(owned)) {
    std::int64_t length = 0;
    for (const int number : group) length += owned.store->even_share_of(number).length;
    const at::Tensor flat = at::zeros({length}, common_type(*owned.store, group));
    std::int64_t offset = 0;
    for (const int number : group) {
      const sharding::EvenShare own = owned.store->even_share_of(number);
      numbers.push_back(number);
      targets.push_back(flat.narrow(0, offset, own.length));
      if (owned.trained.at(static_cast<std::size_t>(number))) {  // others are with the buffers
        const at::Tensor share = flat.narrow(0, offset, own.elements);
        Entry& entry = entries[number];
        entry.master = c10::isComplexType(owned.store->master_type(number)) || !share.is_complex()
                           ? share
                           : at::real(share);  // of a group that has complex ones, too
        entry.master_start = own.start;
      }
      offset += own.length;
    }
    flat_groups.push_back(flat);
  }
  owned.store->copy_even_shares(numbers, targets);
  flat_groups.pop_back();  // parameters of no group
  return part_of(owned, entries, flat_groups).set(std::string("format"), kNewestPartFormat).built();
}

void restore_masters(const SavedState& saved, sharding::ParameterStore& store,
                     const std::vector<std::string>& names) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> masters = store.masters();
  for (const sharding::OwnedPiece& piece : store.pieces()) {
    const std::string& name = names.at(static_cast<std::size_t>(piece.parameter));
    if (!saved.has_master(name)) continue;
    masters.at(static_cast<std::size_t>(piece.arena))
        .narrow(0, piece.offset, piece.elements)
        .copy_(saved.master_of(name, piece.start, piece.elements));
  }
}

std::map<std::string, c10::IValue> state_of_run(const SavedState& saved,
                                                const sharding::MasterRun& run,
                                                const std::vector<std::string>& names) {
  const at::NoGradGuard no_grad;
  std::map<std::string, c10::IValue> state;
  for (const sharding::OwnedPiece& piece : run.pieces) {
    const std::string& name = names.at(static_cast<std::size_t>(piece.parameter));
    const auto found = saved.parameters().find(name);
    if (found == saved.parameters().end()) continue;
    for (const auto& [field, runs] : found->second.runs) {
      const at::Tensor values = saved.run_of(name, field, piece.start, piece.elements);
      auto [held, is_new] = state.try_emplace(field);
      if (is_new) held->second = at::zeros_like(run.parameter.detach(), values.scalar_type());
      run.slice_of(piece, held->second.toTensor()).copy_(values);
    }
    for (const auto& [key, value] : found->second.others) {
      if (!state.contains(key)) state.emplace(key, alone(value));
    }
  }
  return state;
}

}  // namespace smp::checkpoint
