// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/ddp/gradient_bucket.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <ranges>
#include <string>
#include <utility>

#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/session/deadlock/wait_graph.h"

namespace smp::ddp {
namespace {

using std::chrono::milliseconds;

class HookWait : public c10d::Work {
 public:
  explicit HookWait(milliseconds timeout) : timeout_(timeout), deadline_(Clock::now() + timeout) {}

  void end() { finish(); }

  bool isCompleted() override { return Work::isCompleted() || Clock::now() >= deadline_; }

  bool wait(milliseconds at_most) override {
    const Deadline until =
        at_most == kNoTimeout ? deadline_ : std::min(deadline_, Clock::now() + at_most);
    std::unique_lock lock(mutex_);
    if (cv_.wait_until(lock, until, [&] { return completed_; })) return true;
    throw session::WaitTimeout(
        "averaging gradients: the future that the communication hook returned was not done after "
        "{:g} s (SMP_TIMEOUT_SECONDS sets the time); have the hook return the future of a "
        "collective that all ranks start, or one that it completes itself",
        std::chrono::duration<double>(timeout_).count());
  }

 private:
  const milliseconds timeout_;
  const Deadline deadline_;
};

}  // namespace

std::vector<GradientBucket> cut_into_buckets(const std::vector<at::Tensor>& parameters,
                                             const Indices& order, std::int64_t bucket_bytes) {
  std::map<std::pair<at::ScalarType, std::string>, int> kinds;
  std::vector<Gradient> row;
  for (const std::size_t index : order) {
    const at::Tensor& parameter = parameters[index];
    const auto number = static_cast<int>(kinds.size());
    const auto kind =
        kinds.try_emplace({parameter.scalar_type(), parameter.device().str()}, number).first;
    row.push_back({.bytes = static_cast<std::int64_t>(parameter.nbytes()), .kind = kind->second});
  }
  std::vector<GradientBucket> buckets;
  auto next = order.begin();
  for (const std::size_t count : cut_buckets(row, bucket_bytes)) {
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    GradientBucket bucket;
    bucket.parameters = {next, end};
    buckets.push_back(std::move(bucket));
    next = end;
  }
  return buckets;
}

at::Tensor flattened(const GradientBucket& bucket, const std::vector<at::Tensor>& parameters,
                     const GradientOf& gradient_of, int divisor) {
  std::int64_t count = 0;
  for (const std::size_t parameter : bucket.parameters) count += parameters[parameter].numel();
  const at::Tensor& first = parameters[bucket.parameters[0]];
  at::Tensor flat = at::empty({count}, first.options());
  // A scalar on the CPU is an argument of the GPU's kernel; one on the GPU would take a kernel to
  // be filled.
  const at::Tensor scalar =
      at::scalar_tensor(divisor, at::TensorOptions().dtype(first.scalar_type()));
  std::int64_t offset = 0;
  for (const std::size_t parameter : bucket.parameters) {
    const at::Tensor& like = parameters[parameter];
    at::Tensor part = flat.narrow(0, offset, like.numel()).view(like.sizes());
    offset += like.numel();
    const at::Tensor gradient = gradient_of(parameter);
    if (!gradient.defined()) {
      part.zero_();
    } else if (divisor == 1) {
      part.copy_(gradient);
    } else {
      at::div_out(part, gradient, scalar);
    }
  }
  return flat;
}

c10d::GradBucket hook_argument(const GradientBucket& bucket,
                               const std::vector<at::Tensor>& parameters, std::size_t index,
                               std::size_t count) {
  std::vector<std::size_t> offsets;
  std::vector<std::size_t> lengths;
  std::vector<c10::IntArrayRef> sizes;
  std::vector<at::Tensor> tensors;
  std::size_t offset = 0;
  for (const std::size_t parameter : bucket.parameters) {
    const at::Tensor& tensor = parameters[parameter];
    offsets.push_back(offset);
    lengths.push_back(static_cast<std::size_t>(tensor.numel()));
    sizes.push_back(tensor.sizes());
    tensors.push_back(tensor);
    offset += lengths.back();
  }
  return c10d::GradBucket(index, count, bucket.flat, std::move(offsets), std::move(lengths),
                          std::move(sizes), std::move(tensors), std::nullopt);
}

c10::intrusive_ptr<c10d::Work> wait_of(c10::ivalue::Future& future, milliseconds timeout) {
  auto wait = c10::make_intrusive<HookWait>(timeout);
  future.addCallback([wait](c10::ivalue::Future&) { wait->end(); }, /*uses_future=*/false);
  return wait;
}

std::vector<std::size_t> cut_buckets(std::span<const Gradient> row, std::int64_t bucket_bytes) {
  std::int64_t ahead = 0;
  for (const Gradient& gradient : row) ahead += gradient.bytes;
  std::vector<std::size_t> counts;  // from the end
  std::int64_t behind = 0;
  std::int64_t bytes = 0;
  std::int64_t limit = 0;
  int kind = 0;
  for (const Gradient& gradient : row | std::views::reverse) {
    if (counts.empty() || bytes >= limit || gradient.kind != kind) {
      limit = std::min(bucket_bytes, std::max(kSmallestBucketBytes, std::min(behind, ahead) / 2));
      kind = gradient.kind;
      bytes = 0;
      counts.push_back(0);
    }
    ++counts.back();
    bytes += gradient.bytes;
    behind += gradient.bytes;
    ahead -= gradient.bytes;
  }
  std::ranges::reverse(counts);
  return counts;
}

}  // namespace smp::ddp
