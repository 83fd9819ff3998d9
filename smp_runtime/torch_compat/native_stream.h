// SPDX-License-Identifier: Apache-2.0
// The device's own handle of a stream, which torch 2.10 does not tell.
#pragma once

#include <c10/core/Stream.h>

#include "smp_runtime/core/error.h"

namespace smp::torch_compat {

/// A cudaStream_t of a CUDA stream. Throws ConfigError with torch 2.10, for which the library is
/// built without GPU code.
template <class Stream>
void* native_handle(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    throw ConfigError(
        "GPU tensors need torch 2.11 or newer; this library was built for torch 2.10");
  }
}

}  // namespace smp::torch_compat
