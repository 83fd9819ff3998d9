// SPDX-License-Identifier: Apache-2.0
// Errors as users of torch.distributed see them.
#pragma once

#include <exception>

namespace smp::smddp {

/// Our errors as c10::DistBackendError; others, and null, as they are.
[[nodiscard]] std::exception_ptr as_torch_error(const std::exception_ptr& error);

}  // namespace smp::smddp
