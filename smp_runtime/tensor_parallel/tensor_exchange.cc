// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/tensor_exchange.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/record/recorder.h"
#include "smp_runtime/session/group_failure.h"
#include "smp_runtime/torch_compat/torch_compat.h"

namespace smp::tensor_parallel {
namespace {

constexpr std::string_view kWhat = "an exchange of tensor parallelism";
// DistributedModel.join() is refused with tensor parallelism.
constexpr auto kUneven = session::Uneven::kRefused;
/// Up to here one round of everything to everyone is faster than two of parts.
constexpr std::int64_t kSmallBytes = 16 * 1024;

/// Gloo knows few types, and moving needs none.
at::Tensor as_bytes(const at::Tensor& contiguous) {
  return contiguous.reshape({-1}).view(at::kByte);
}

bool is_on_cpu(const at::Tensor& tensor) { return tensor.device().is_cpu(); }

/// Adds up rows [t, n], in rank order.
at::Tensor sum_of_rows(const at::Tensor& rows) {
  const bool narrow = rows.scalar_type() == at::kHalf || rows.scalar_type() == at::kBFloat16;
  at::Tensor sum = narrow ? rows[0].to(at::kFloat) : rows[0].clone();
  for (std::int64_t row = 1; row < rows.size(0); ++row) sum.add_(rows[row]);
  return narrow ? sum.to(rows.scalar_type()) : sum;
}

}  // namespace

TensorExchange::TensorExchange(std::string group_name, int size, int rank, int under_way,
                               std::shared_ptr<session::DeadlockDetector> watch,
                               std::shared_ptr<record::Recorder> recorder)
    : group_name_(std::move(group_name)),
      size_(size),
      rank_(rank),
      throttle_(under_way),
      watch_(std::move(watch)),
      recorder_(std::move(recorder)) {
  SMP_CHECK(size >= 1 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
}
TensorExchange::~TensorExchange() = default;

at::Tensor TensorExchange::move(const Redistribution& redistribution, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const std::vector<std::int64_t> sizes =
      moved_sizes(redistribution, tensor.sizes(), size_, "a tensor of a distributed layer");
  if (size_ == 1 || redistribution.kind == RedistributionKind::kStay) return tensor.detach();
  if (redistribution.kind == RedistributionKind::kSlice) {
    const std::int64_t part = tensor.size(redistribution.dim) / size_;
    return tensor.narrow(redistribution.dim, rank_ * part, part).contiguous();
  }
  const std::int64_t bytes = tensor_parallel::bytes_sent(
      redistribution, static_cast<std::int64_t>(tensor.nbytes()), size_);
  bytes_sent_ += bytes;
  if (recorder_) recorder_->sent(watch_->members(group_name_), bytes / (size_ - 1));
  switch (redistribution.kind) {
    case RedistributionKind::kGather: {
      const at::Tensor all = gather_rows(tensor.contiguous());  // [t, ...]
      const std::int64_t dim =
          redistribution.dim < 0 ? redistribution.dim + tensor.dim() : redistribution.dim;
      return all.movedim(0, dim).reshape(sizes);
    }
    case RedistributionKind::kReduceScatter: {
      const std::int64_t dim =
          redistribution.dim < 0 ? redistribution.dim + tensor.dim() : redistribution.dim;
      std::vector<std::int64_t> split = tensor.sizes().vec();
      split[dim] /= size_;
      split.insert(split.begin() + dim, size_);
      return sum_of_slices(tensor.reshape(split).movedim(dim, 0).contiguous());
    }
    case RedistributionKind::kAllReduce:
      return all_reduce(tensor.contiguous());
    case RedistributionKind::kExchange: {
      const std::int64_t dim =
          redistribution.dim < 0 ? redistribution.dim + tensor.dim() : redistribution.dim;
      const std::int64_t join =
          redistribution.join < 0 ? redistribution.join + tensor.dim() : redistribution.join;
      std::vector<std::int64_t> split = tensor.sizes().vec();
      split[dim] /= size_;
      split.insert(split.begin() + dim, size_);
      const at::Tensor came = exchange_rows(tensor.reshape(split).movedim(dim, 0).contiguous());
      return came.movedim(0, join).reshape(sizes);
    }
    default:
      throw InternalError("a redistribution of unknown kind");
  }
}

/// Runs a collective of the group. On the CPU it is over then; on a GPU the current stream waits
/// for it, and the CPU only where too many are under way.
template <typename Start>
void TensorExchange::exchange(const at::Tensor& tensor, Start start) {
  const bool throttled = throttle_.limits() && !is_on_cpu(tensor);
  if (throttled) throttle_.make_room();
  // By its name each time: who holds a group keeps its connections beyond the session, and a rank
  // that still waits there is not told that this one has left.
  const auto group = c10d::resolve_process_group(group_name_);
  const session::WaitingCall call = session::group_call(*group, kWhat, watch_.get());
  const auto work = session::translate_c10d_errors(
      *group, kWhat, [&] { return start(*group); }, kUneven);
  const record::Waited waited(recorder_.get(), record::Activity::kExchange,
                              [] { return std::string("tensor exchange"); });
  session::await(*group, kWhat, *work, tensor.device().type(), kUneven, watch_.get());
  if (!throttled) return;
  throttle_.add([over = cuda::StreamEvent::record(tensor.device())] { over.synchronize(); });
}

at::Tensor TensorExchange::gather_rows(const at::Tensor& contiguous) {
  std::vector<std::int64_t> sizes = contiguous.sizes().vec();
  sizes.insert(sizes.begin(), size_);
  if (group_name_.empty()) return contiguous.unsqueeze(0).expand(sizes).contiguous();
  at::Tensor all = at::empty(sizes, contiguous.options());
  at::Tensor output = as_bytes(all);
  at::Tensor input = as_bytes(contiguous);
  exchange(contiguous,
           [&](auto& group) { return torch_compat::all_gather_single(group, output, input); });
  return all;
}

at::Tensor TensorExchange::exchange_rows(const at::Tensor& contiguous) {
  if (group_name_.empty()) return contiguous.clone();
  at::Tensor came = at::empty_like(contiguous);
  at::Tensor output = as_bytes(came);
  at::Tensor input = as_bytes(contiguous);
  exchange(contiguous,
           [&](auto& group) { return torch_compat::all_to_all_single(group, output, input); });
  return came;
}

at::Tensor TensorExchange::sum_of_slices(const at::Tensor& contiguous) {
  if (!group_name_.empty() && !is_on_cpu(contiguous)) {
    at::Tensor input = contiguous.view({-1});  // gloo refuses rows
    at::Tensor output = at::empty({input.numel() / size_}, contiguous.options());
    exchange(contiguous, [&](auto& group) {
      return torch_compat::reduce_scatter_single(group, output, input);
    });
    return output.view(contiguous.sizes().slice(1));
  }
  return sum_of_rows(exchange_rows(contiguous));
}

at::Tensor TensorExchange::all_reduce(const at::Tensor& tensor) {
  if (!group_name_.empty() && !is_on_cpu(tensor)) {
    std::vector<at::Tensor> tensors{tensor.clone()};
    exchange(tensor, [&](auto& group) { return group.allreduce(tensors); });
    return tensors[0];
  }
  if (size_ == 2 || static_cast<std::int64_t>(tensor.nbytes()) <= kSmallBytes) {
    return sum_of_rows(gather_rows(tensor));
  }
  const std::int64_t count = tensor.numel();
  const std::int64_t padding = (size_ - count % size_) % size_;
  at::Tensor flat = tensor.reshape({-1});
  if (padding > 0) flat = at::constant_pad_nd(flat, {0, padding});
  const at::Tensor part = sum_of_slices(flat.view({size_, -1}));
  return gather_rows(part).view({-1}).narrow(0, 0, count).view(tensor.sizes());
}

}  // namespace smp::tensor_parallel
