// SPDX-License-Identifier: Apache-2.0
// The types of elements that kernels know. C++17, without Torch and CUDA.
#pragma once

#include <cstdint>

namespace smp::cuda {

enum class NumberType : std::uint8_t { kFloat, kDouble, kHalf, kBFloat16 };

}  // namespace smp::cuda
