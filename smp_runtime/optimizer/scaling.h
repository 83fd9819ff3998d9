// SPDX-License-Identifier: Apache-2.0
// Gradients that a loss scale is taken out of, or that are clipped.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace smp::optimizer {

/// Multiplies contiguous `tensors`, of one type and device, by `factor`, and returns the sum of
/// their squares afterwards: infinite or no number if an element is. Each element is read once and
/// written once. Waits for the GPU. Throws ConfigError for other types than floats of 16 to 64
/// bits.
double scale_and_measure(const std::vector<at::Tensor>& tensors, double factor);

}  // namespace smp::optimizer
