// SPDX-License-Identifier: Apache-2.0
// The norm of gradients, as far as one rank knows it.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace smp::optimizer {

/// The sum of the squares of all elements of contiguous `tensors`, of one type and device, in 64
/// bits: infinite or no number if an element is. Each element is read once and nothing is copied.
/// Waits for the GPU. Throws ConfigError for other types than floats of 16 to 64 bits.
double sum_of_squares(const std::vector<at::Tensor>& tensors);

/// The sum of all elements' absolute values to the power of `norm_type`, or the largest one for the
/// infinite norm: a scalar of 64 bits on the CPU, zero for no tensors. By torch's operations, in
/// pieces, so that no copy is as large as a tensor; waits for the device once.
at::Tensor sum_of_powers(const std::vector<at::Tensor>& tensors, double norm_type);

/// The sum of each tensor's squares, [n] of 64 bits, by torch's operations, with a copy in 64 bits:
/// for devices that this build has no kernel for. Does not wait for the device.
at::Tensor squares_by_torch(const std::vector<at::Tensor>& tensors);

}  // namespace smp::optimizer
