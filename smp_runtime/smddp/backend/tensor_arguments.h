// SPDX-License-Identifier: Apache-2.0
// Arguments of torch.distributed's calls, checked, and in the form of the collectives. Those that
// can never work are refused here (ValueError, TypeError), so that no rank waits for this one.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "smp_runtime/smddp/backend/byte_view.h"

namespace smp::smddp {

/// The only one of `tensors`.
const at::Tensor& the_one(const std::vector<at::Tensor>& tensors, const char* operation);

/// Header of a call that reduces `tensor`.
collectives::CallSignature reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op);

/// `tensor`, times the factor of a premultiplied sum; as on_cpu().
at::Tensor input_of(const at::Tensor& tensor, const c10d::ReduceOp& op);

std::vector<StagingBuffer> staging_buffers_of(const std::vector<at::Tensor>& tensors);
std::vector<collectives::Bytes> bytes_of(const std::vector<StagingBuffer>& buffers);
std::vector<collectives::ConstBytes> bytes_of(const std::vector<at::Tensor>& tensors);
void finish(const std::vector<StagingBuffer>& buffers);

/// Memory of a GPU that NCCL writes for `target`: its own where it is contiguous. What is to be
/// read there, too, is put there in the thread's stream.
at::Tensor writable(const at::Tensor& target, bool keeps_content);
/// Puts it where it belongs, in the thread's stream.
void put_back(const at::Tensor& target, const at::Tensor& written);
std::vector<at::Tensor> on_cpu(const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> joined(const std::vector<std::vector<at::Tensor>>& lists);

/// `tensors` are `count` of the size and type of `like`.
void check_alike(const std::vector<at::Tensor>& tensors, const at::Tensor& like, int count,
                 const char* operation);
/// `tensors` are `count` of the type of `like`; sizes may differ.
void check_types(const std::vector<at::Tensor>& tensors, const at::Tensor& like, int count,
                 const char* operation);
bool differ_in_size(const std::vector<at::Tensor>& tensors);
/// `whole` is `count` times `part`.
void check_whole(const at::Tensor& whole, const at::Tensor& part, int count, const char* operation);

/// A contiguous tensor's memory in parts of equal size.
template <typename Span>
std::vector<Span> equal_parts(Span whole, int count) {
  const size_t size = whole.size() / static_cast<size_t>(count);
  std::vector<Span> parts;
  for (size_t part = 0; part < static_cast<size_t>(count); ++part) {
    parts.push_back(whole.subspan(part * size, size));
  }
  return parts;
}

/// The memory of a tensor cut along its first dim; no splits means equal ones.
template <typename Span>
std::vector<Span> split_parts(const at::Tensor& tensor, Span whole,
                              const std::vector<int64_t>& splits, int count) {
  if (splits.empty()) {
    TORCH_CHECK_VALUE(tensor.dim() > 0 && tensor.size(0) % count == 0,
                      "smddp: all_to_all_single: the first dim of ", tensor.sizes(),
                      " does not divide by ", count, " ranks");
    return equal_parts(whole, count);
  }
  const int64_t total = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  TORCH_CHECK_VALUE(
      splits.size() == static_cast<size_t>(count) && tensor.dim() > 0 && total == tensor.size(0),
      "smddp: all_to_all_single: splits ", splits, " do not fit a tensor of ", tensor.sizes(),
      " and ", count, " ranks");
  const size_t row = total == 0 ? 0 : whole.size() / static_cast<size_t>(total);
  std::vector<Span> parts;
  size_t start = 0;
  for (const int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "smddp: all_to_all_single: a negative split");
    parts.push_back(whole.subspan(start, static_cast<size_t>(split) * row));
    start += static_cast<size_t>(split) * row;
  }
  return parts;
}

}  // namespace smp::smddp
