// SPDX-License-Identifier: Apache-2.0
// Adam's update of many tensors at once.
//
// Torch's fused Adam is faster on the CPU (1.3 to 2.5 times with one thread), but the bits of an
// element depend on its place in a tensor there, as vectors and what is left over after them round
// differently: a shard or a slice would differ from the whole.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/optimizer/adam_kernel.h"

namespace smp::optimizer {

/// Advances `first` and `second`, the moments, by `gradients`, and `parameters` by them. The lists
/// are of equal length and their tensors alike in shape, type and device; one type and device in
/// all. A kernel on a GPU, on its current stream; else the same arithmetic on the CPU: with equal
/// input both make equal bits. Torch's operations where this build has no kernel for the device.
/// Throws ConfigError for tensors that differ, or that are not of 16 to
/// 64 bit floats.
void adam_step(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
               const std::vector<at::Tensor>& first, const std::vector<at::Tensor>& second,
               const AdamNumbers& numbers);

/// Alike in shape, type and device.
struct AdamTensors {
  const at::Tensor& parameter;
  const at::Tensor& gradient;
  const at::Tensor& first;   ///< moment
  const at::Tensor& second;  ///< moment
};

/// Computes the same by Torch's operations, up to rounding, on any device: by a dozen kernels and
/// copies in 32 bits at least, in place of one kernel. Does not wait for the device.
void adam_by_torch(const AdamTensors& tensors, const AdamNumbers& numbers);

}  // namespace smp::optimizer
