// SPDX-License-Identifier: Apache-2.0
// Averages gradients over the ranks of a group, in buckets.
//
// c10d's reducer decides at forward time whether the next backward reduces, which is wrong with
// several forwards under way; this one is called when all backwards of a step are over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace smp::collectives {

class GradientReducer {
 public:
  /// `group_name` is a registered c10d group that reaches the parameters' devices. All ranks give
  /// the same parameters in the same order.
  GradientReducer(std::string group_name, std::vector<at::Tensor> parameters, int64_t bucket_bytes);

  /// Makes every parameter's `.grad` the mean over the group. A parameter without gradient counts
  /// as zeros if another rank has one, and stays without if none has. All ranks call it; blocks
  /// until done, at most the group's timeout. Throws UserCodeError for sparse gradients.
  void average();

 private:
  const std::string group_name_;
  const std::vector<at::Tensor> parameters_;
  const int64_t bucket_bytes_;
};

/// Overwrites `tensors` with those of rank `root` of the group, in buckets. All ranks call it.
void broadcast_tensors(const std::string& group_name, const std::vector<at::Tensor>& tensors,
                       int root);

}  // namespace smp::collectives
