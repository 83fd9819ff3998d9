// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/host_name.h"

#include <sys/utsname.h>

namespace smp {

std::string host_name() {
  utsname names{};
  uname(&names);
  return names.nodename;
}

}  // namespace smp
