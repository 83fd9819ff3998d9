// SPDX-License-Identifier: Apache-2.0
// Launches of kernels on torch's streams, and the types of elements that kernels know. C++17,
// without Torch, and without CUDA but in .cu files.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace at {
class Tensor;
}  // namespace at
struct CUstream_st;

namespace smp::cuda {

enum class NumberType : std::uint8_t { kFloat, kDouble, kHalf, kBFloat16 };

/// Calls `body` with a value of the type. The types of 16 bits are CUDA's or Torch's: with_type and
/// with_cpu_type, in tensor_type.h, say which.
template <typename Half, typename BFloat16, typename Body>
void with_number(NumberType type, const Body& body) {
  switch (type) {
    case NumberType::kFloat:
      return body(float());
    case NumberType::kDouble:
      return body(double());
    case NumberType::kHalf:
      return body(Half());
    case NumberType::kBFloat16:
      return body(BFloat16());
  }
}

#ifdef __CUDACC__
/// The same with CUDA's types.
template <typename Body>
void with_type(NumberType type, const Body& body) {
  with_number<__half, __nv_bfloat16>(type, body);
}
#endif

/// True in builds with GPU code; else what follows is of no use.
#ifdef SMP_HAS_CUDA
inline constexpr bool kBuilt = true;
#else
inline constexpr bool kBuilt = false;
#endif

using Stream = CUstream_st*;  ///< cudaStream_t, for headers without CUDA's

/// The current stream of the calling thread on the device of `tensor`; what is started on it waits
/// for what made the tensor.
[[nodiscard]] Stream current_stream(const at::Tensor& tensor);

/// Throws HostError, naming the kernel and CUDA's reason, if its launch just failed.
void check_launch(const char* kernel);

}  // namespace smp::cuda
