// SPDX-License-Identifier: Apache-2.0
// Starting kernels on torch's streams. Of no use where kBuilt is false.
#pragma once

#include <cstdint>

#include "smp_runtime/cuda/number_type.h"

namespace at {
class Tensor;
}  // namespace at
struct CUstream_st;

namespace smp::cuda {

using Stream = CUstream_st*;  ///< cudaStream_t, for headers without CUDA's

/// The current stream of the calling thread on the device of `tensor`; what is started on it waits
/// for what made the tensor.
[[nodiscard]] Stream current_stream(const at::Tensor& tensor);

/// Throws HostError, naming the kernel and CUDA's reason, if its launch just failed.
void check_launch(const char* kernel);

}  // namespace smp::cuda
