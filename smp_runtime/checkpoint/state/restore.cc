// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/restore.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

namespace smp::checkpoint {

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
