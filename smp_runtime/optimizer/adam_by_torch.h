// SPDX-License-Identifier: Apache-2.0
// Adam's update by Torch's operations: for devices that this build has no kernel for.
#pragma once

#include <ATen/core/Tensor.h>

#include "smp_runtime/optimizer/adam_kernel.h"

namespace smp::optimizer {

/// Alike in shape, type and device.
struct AdamTensors {
  const at::Tensor& parameter;
  const at::Tensor& gradient;
  const at::Tensor& first;   ///< moment
  const at::Tensor& second;  ///< moment
};

/// Computes the same as adam_step, up to rounding, on any device: by a dozen kernels and copies in
/// 32 bits at least, in place of one kernel. Does not wait for the device.
void adam_by_torch(const AdamTensors& tensors, const AdamNumbers& numbers);

}  // namespace smp::optimizer
