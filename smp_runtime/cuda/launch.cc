// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/launch.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "smp_runtime/core/error.h"

namespace smp::cuda {

Stream current_stream(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  throw HostError("the kernel {} was not started: {} ({})", kernel, cudaGetErrorString(error),
                  cudaGetErrorName(error));
}

}  // namespace smp::cuda
