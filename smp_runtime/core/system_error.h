// SPDX-License-Identifier: Apache-2.0
// Texts of errnos, with the limit to raise where one was reached.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <sys/resource.h>

namespace smp {

/// strerror's text; where a limit of the process was reached, the limit and how it is raised.
inline std::string system_error_text(int error) {
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
