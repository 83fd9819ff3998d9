// SPDX-License-Identifier: Apache-2.0
// Errors as users of torch.distributed see them.
#pragma once

#include <exception>
#include <string>

#include <c10/util/Exception.h>

#include "smp_runtime/core/error.h"

namespace smp::smddp {

/// Our errors as c10::DistBackendError; others, and null, as they are.
[[nodiscard]] inline std::exception_ptr as_torch_error(const std::exception_ptr& error) {
  if (!error) return nullptr;
  try {
    try {
      std::rethrow_exception(error);
    } catch (const Error& problem) {
      C10_THROW_ERROR(DistBackendError, std::string("smddp: ") + problem.what());
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace smp::smddp
