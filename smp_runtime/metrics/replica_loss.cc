// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/replica_loss.h"

#include <exception>
#include <string_view>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "smp_runtime/session/group_failure.h"

namespace smp::metrics {

using topology::Group;

namespace {

constexpr std::string_view kWhat = "the mean loss";

}  // namespace

void ReplicaLoss::exchange(const at::Tensor& own, at::Device device) {
  const at::NoGradGuard no_grad;
  sum_and_count_ = at::zeros({2}, at::TensorOptions(device).dtype(at::kDouble));
  if (own.defined()) {
    sum_and_count_.narrow(0, 0, 1).copy_(own.reshape({1}), /*non_blocking=*/device.is_cuda());
    sum_and_count_.narrow(0, 1, 1).fill_(1);
  }
  std::vector<at::Tensor> tensors{sum_and_count_};
  const session::GroupPtr group = groups_.internal_group(Group::kDp);
  turn_ = session::start_turn(*group, kWhat, watch_.get());
  work_ = group->allreduce(tensors);
}

std::optional<MeanLoss> ReplicaLoss::mean() {
  if (!work_) return std::nullopt;
  try {
    session::await(*groups_.internal_group(Group::kDp), kWhat, *work_,
                   sum_and_count_.device().type(), session::Uneven::kNever, watch_.get(), turn_);
    const at::Tensor both = sum_and_count_.cpu();
    const double* const numbers = both.const_data_ptr<double>();
    const int ranks = static_cast<int>(numbers[1]);
    if (ranks == 0) return MeanLoss{};
    return MeanLoss{.loss = numbers[0] / ranks, .ranks = ranks};
  } catch (const session::CallMismatch&) {
    throw;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool reports(const cluster::RuntimeOptions& options) {
  return options.progress || !options.metrics_file.empty() || !options.tensorboard_folder.empty() ||
         !options.openmetrics_file.empty() || !options.embedded_metrics.empty();
}

std::shared_ptr<ReplicaLoss> make_replica_loss(session::Session& session) {
  const std::vector<int>& with_a_loss = session.groups().ranks(Group::kDp);
  if (!session.config().ddp || with_a_loss.size() == 1 || with_a_loss.front() != 0) return nullptr;
  const std::string answer =
      session.told_by_first("reports", reports(session.options()) ? "yes" : "no");
  return answer == "yes" ? std::make_shared<ReplicaLoss>(session) : nullptr;
}

}  // namespace smp::metrics
