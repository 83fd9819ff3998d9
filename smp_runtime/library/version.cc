// SPDX-License-Identifier: Apache-2.0
#include "smp/version.h"

#define SMP_TEXT_OF(number) #number
#define SMP_TEXT(number) SMP_TEXT_OF(number)

namespace smp {

std::string version() {
  return SMP_TEXT(SMP_VERSION_MAJOR) "." SMP_TEXT(SMP_VERSION_MINOR) "." SMP_TEXT(
      SMP_VERSION_PATCH);
}

}  // namespace smp
