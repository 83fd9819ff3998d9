// SPDX-License-Identifier: Apache-2.0
#include "smp/version.h"

#include <fmt/format.h>

namespace smp {

std::string version() {
  return fmt::format("{}.{}.{}", SMP_VERSION_MAJOR, SMP_VERSION_MINOR, SMP_VERSION_PATCH);
}

}  // namespace smp
