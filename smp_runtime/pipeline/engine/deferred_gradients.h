// SPDX-License-Identifier: Apache-2.0
// Backwards in two parts, as zero-bubble schedules have them (Qi et al. 2024, arXiv:2401.10241):
// the gradients of activations at once, for other ranks wait for them, and those of parameters when
// there is nothing better to do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include "smp_runtime/pipeline/engine/separable_nodes.h"
#include "smp_runtime/pipeline/scheduler.h"
#include "smp_runtime/torch_compat/torch_compat.h"

namespace smp::pipeline {

/// Torch's own nodes compute both parts, each by a run of its own with the other part's edges taken
/// out, so no formula is ours and gradients keep their bits: nodes that share a parameter have
/// their later part in one run, which adds up what each gives in the order of a whole backward.
/// Sums, products, convolutions and embeddings are run so: nearly all of a network's work, and each
/// part costs about its share of both. What their nodes have saved passes through its hooks in the
/// first part, once: activation checkpointing recomputes there, and offloading loads, as in a whole
/// backward. Of the thread that works for the rank; see Scheduler.
class DeferredGradients {
 public:
  enum class Leaf : uint8_t {
    kOther,
    kHooked,     ///< adds to a parameter, where a hook of a user's is to see the gradient
    kParameter,  ///< adds to a parameter whose gradient may come late
  };
  using Leaves = std::function<Leaf(torch::autograd::Node&)>;

  /// What a node has saved, of a class that this file knows nothing of; none if nobody knows.
  using Saved = std::function<std::optional<SavedTensors>(torch::autograd::Node&)>;

  explicit DeferredGradients(Leaves leaves, Saved saved = {});

  struct Work;
  using Works = std::vector<std::shared_ptr<Work>>;

  /// Changes the graph below `roots`, and these, so that its backward leaves the later parts here,
  /// each as soon as all of its first parts are done. The graph is of no use for another backward
  /// then. Tells `not_later`, if anybody asks, why gradients that could come later do not.
  [[nodiscard]] Works split(int64_t microbatch, torch::autograd::edge_list& roots,
                            const std::function<void(std::string_view)>& not_later = {}) const;
  /// Throws InternalError unless the backward of what split() gave has left all of it.
  static void check(const Works& works);

  /// The microbatch of the work that is to be done next; none if there is none.
  [[nodiscard]] std::optional<int64_t> next() const;
  /// What the microbatch's backwards have left since clear().
  [[nodiscard]] DeferredWork of(int64_t microbatch) const;
  /// Does the oldest piece of work of the lowest microbatch: a backward that ends in parameters.
  /// There must be one. Throws UserCodeError where a gradient that came to a layer was changed in
  /// place since, which would be another one for its parameters than in one backward.
  void run_next();
  /// Forgets all work: before a step, and when one has failed.
  void clear();

 private:
  class Part;
  struct Queue;

  const Leaves leaves_;
  const Saved saved_;
  const std::shared_ptr<Queue> queue_;  ///< shared with graphs whose backward is to come
};

}  // namespace smp::pipeline
