// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/system_error.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/resource.h>

namespace smp {

std::string system_error_text(int error) {
  if (error == EMFILE) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    return fmt::format(
        "{}: the limit of this process is {} open files; raise it (ulimit -n), or have fewer "
        "groups at a time",
        std::strerror(error), files.rlim_cur);
  }
  return std::strerror(error);
}

}  // namespace smp
