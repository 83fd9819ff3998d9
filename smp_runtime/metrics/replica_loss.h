// SPDX-License-Identifier: Apache-2.0
// The mean of a step's loss over the data-parallel group of rank 0, which reports it.
//
// It goes along with the gradients: where a step averages those, and no replica can be missing,
// each rank of the group starts one exchange of two numbers and goes on. Only rank 0 waits for it,
// and only in steps of which it says something; no rank waits for its GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "smp_runtime/session/session.h"

namespace smp::metrics {

struct MeanLoss {
  std::optional<double> loss;
  int ranks = 0;  ///< over how many it is the mean
};

/// One thread at a time.
class ReplicaLoss {
 public:
  /// Uses the group that gradients are averaged in: its ranks come to exchange() in one order.
  explicit ReplicaLoss(session::Session& session)
      : groups_(session.groups()), watch_(session.barriers().watch()) {}

  /// A step begins, and has not averaged anything yet.
  void forget() { work_.reset(); }
  /// After gradients were averaged; `own` is the loss of this rank's step, undefined where it has
  /// none, or made no step, and travels from `device`. Collective over the group; does not wait.
  void exchange(const at::Tensor& own, at::Device device);
  /// Waits for the others. Empty unless this step averaged gradients, or where a rank was lost,
  /// which others will say. Throws CallMismatch where they are in other calls.
  [[nodiscard]] std::optional<MeanLoss> mean();

 private:
  session::Groups& groups_;
  const std::shared_ptr<session::DeadlockDetector> watch_;  // there are several ranks
  std::optional<std::int64_t> turn_;                        // of the exchange, among them
  at::Tensor sum_and_count_;
  c10::intrusive_ptr<c10d::Work> work_;
};

/// True if the environment asks rank 0 for a line or metrics.
bool reports(const cluster::RuntimeOptions& options);

/// Null unless several ranks have a loss, this one and rank 0 among them, and rank 0 reports it.
/// Collective over the job.
std::shared_ptr<ReplicaLoss> make_replica_loss(session::Session& session);

}  // namespace smp::metrics
