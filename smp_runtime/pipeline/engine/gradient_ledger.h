// SPDX-License-Identifier: Apache-2.0
// Adds gradients to parameters in the order of microbatches, whatever the order of the backwards.
//
// Floating-point addition is not associative: without this, `deterministic_server` would fix the
// order of work but not of every addition. With it the bits equal those of one process that runs
// the microbatches one after the other, but for one thing: where one call to a rank uses a tensor
// several times, their gradients are added there first. Costs one gradient per microbatch that
// finished early.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/pipeline/engine/deferred_gradients.h"
#include "smp_runtime/torch_compat/torch_compat.h"

namespace smp::pipeline {

class GradientLedger {
 public:
  /// `microbatch` says for which microbatch the calling thread works; -1: gradients pass through,
  /// as they all do unless `ordered`. `seen` is called for each gradient.
  GradientLedger(bool ordered, std::function<int64_t()> microbatch, std::function<void()> seen);
  ~GradientLedger();
  GradientLedger(const GradientLedger&) = delete;
  GradientLedger& operator=(const GradientLedger&) = delete;

  /// From now on gradients of these leaves go through the ledger, behind the hooks of users. Those
  /// of leaves that are frozen do from the step on before which they no longer are.
  void track(const std::vector<at::Tensor>& parameters);

  [[nodiscard]] DeferredGradients::Leaf leaf(torch::autograd::Node& node) const;

  /// The backward of `microbatch` is over: adds its gradients, and those waiting for it, to
  /// `.grad`.
  void finish(int64_t microbatch);

  /// Begins a step, forgetting what a failed one left.
  void reset();

 private:
  class Hook;
  struct Entry {
    at::Tensor parameter;
    torch_compat::NodePtr accumulator;  ///< with the hook; null while frozen
    std::map<int64_t, at::Tensor> by_microbatch;
  };
  void watch(size_t entry);
  at::Tensor record(size_t entry, const at::Tensor& gradient);

  const bool ordered_;
  const std::function<int64_t()> microbatch_;
  const std::function<void()> seen_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::unordered_set<const torch::autograd::Node*> accumulators_;  ///< of the entries
  std::vector<bool> finished_;
  int64_t next_ = 0;  ///< all microbatches below are in `.grad`
  /// Hooks outlive the ledger when a parameter does.
  std::shared_ptr<GradientLedger*> self_;
};

}  // namespace smp::pipeline
