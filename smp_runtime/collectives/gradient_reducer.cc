// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/collectives/gradient_reducer.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "smp_runtime/core/error.h"

namespace smp::collectives {
namespace {

constexpr size_t kBroadcastBytes = 250 * 1024 * 1024;

struct Bucket {
  std::vector<at::Tensor> gradients;
  int64_t bytes = 0;
  at::Tensor flat;
  c10::intrusive_ptr<c10d::Work> work;
};

c10::intrusive_ptr<c10d::Work> start_all_reduce(c10d::ProcessGroup& group, const at::Tensor& tensor,
                                                c10d::ReduceOp::RedOpType operation) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  return group.allreduce(tensors, options);
}

/// Which parameters have a gradient on any rank: others must keep none, for an optimizer treats a
/// missing gradient and zeros differently.
at::Tensor present_anywhere(c10d::ProcessGroup& group, const std::vector<at::Tensor>& parameters) {
  const at::Device device = parameters[0].device();
  at::Tensor present = at::empty({static_cast<int64_t>(parameters.size())}, at::kByte);
  auto* flags = present.data_ptr<uint8_t>();
  for (size_t index = 0; index < parameters.size(); ++index) {
    flags[index] = parameters[index].grad().defined() ? 1 : 0;
  }
  present = present.to(device);
  start_all_reduce(group, present, c10d::ReduceOp::MAX)->wait();
  return present.cpu();
}

/// Consecutive gradients of one type and device, last parameter first: about the order in which
/// backwards finish them.
std::vector<Bucket> make_buckets(const std::vector<at::Tensor>& parameters,
                                 const at::Tensor& present, int64_t bucket_bytes) {
  const auto* flags = present.data_ptr<uint8_t>();
  std::vector<Bucket> buckets;
  for (size_t index = parameters.size(); index-- > 0;) {
    if (flags[index] == 0) continue;
    at::Tensor& grad = parameters[index].mutable_grad();
    if (!grad.defined()) grad = at::zeros_like(parameters[index]);
    if (grad.is_sparse()) {
      throw UserCodeError(
          "the gradient of parameter {} (shape {}) is sparse; averaging sparse gradients is not "
          "available yet: make its layer without sparse=True",
          index, fmt::join(parameters[index].sizes(), "x"));
    }
    const bool fits = !buckets.empty() && buckets.back().bytes < bucket_bytes &&
                      buckets.back().gradients[0].scalar_type() == grad.scalar_type() &&
                      buckets.back().gradients[0].device() == grad.device();
    if (!fits) buckets.emplace_back();
    buckets.back().gradients.push_back(grad);
    buckets.back().bytes += static_cast<int64_t>(grad.nbytes());
  }
  return buckets;
}

}  // namespace

GradientReducer::GradientReducer(std::string group_name, std::vector<at::Tensor> parameters,
                                 int64_t bucket_bytes)
    : group_name_(std::move(group_name)),
      parameters_(std::move(parameters)),
      bucket_bytes_(bucket_bytes) {}

void GradientReducer::average() {
  const auto group = c10d::resolve_process_group(group_name_);
  if (group->getSize() == 1 || parameters_.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<Bucket> buckets =
      make_buckets(parameters_, present_anywhere(*group, parameters_), bucket_bytes_);
  for (Bucket& bucket : buckets) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& gradient : bucket.gradients) flat.push_back(gradient.reshape({-1}));
    bucket.flat = at::cat(flat);
    bucket.work = start_all_reduce(*group, bucket.flat, c10d::ReduceOp::SUM);
  }
  for (Bucket& bucket : buckets) {
    bucket.work->wait();
    bucket.flat.div_(group->getSize());
    int64_t offset = 0;
    for (at::Tensor& gradient : bucket.gradients) {
      gradient.copy_(bucket.flat.narrow(0, offset, gradient.numel()).view(gradient.sizes()));
      offset += gradient.numel();
    }
  }
}

void broadcast_tensors(const std::string& group_name, const std::vector<at::Tensor>& tensors,
                       int root) {
  const auto group = c10d::resolve_process_group(group_name);
  if (group->getSize() == 1 || tensors.empty()) return;
  const at::NoGradGuard no_grad;
  c10d::broadcast_coalesced(group, tensors, kBroadcastBytes, root);
}

}  // namespace smp::collectives
