// SPDX-License-Identifier: Apache-2.0
// True in builds with GPU code.
#pragma once

namespace smp::cuda {

#ifdef SMP_HAS_CUDA
inline constexpr bool kBuilt = true;
#else
inline constexpr bool kBuilt = false;
#endif

}  // namespace smp::cuda
