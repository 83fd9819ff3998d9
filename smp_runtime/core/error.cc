// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/error.h"

namespace smp::detail {

void check_failed(const char* condition, const std::string& message,
                  const std::source_location& where) {
  throw InternalError(
      "{} ({}:{}: `{}` does not hold); this is a bug of the runtime, please report it", message,
      where.file_name(), where.line(), condition);
}

}  // namespace smp::detail
