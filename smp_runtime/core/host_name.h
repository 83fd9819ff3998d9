// SPDX-License-Identifier: Apache-2.0
// The name of this host.
#pragma once

#include <string>

#include <sys/utsname.h>

namespace smp {

/// This host's own name for itself; for people and for names of files.
inline std::string host_name() {
  utsname names{};
  uname(&names);
  return names.nodename;
}

}  // namespace smp
