// SPDX-License-Identifier: Apache-2.0
// A stream of the supervisor's as a file in memory, so that a test can read what came out.
#pragma once

#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace entrypoint {

struct Outlet {
  Outlet() : fd(memfd_create("outlet", MFD_CLOEXEC)) {}
  ~Outlet() { close(fd); }
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  [[nodiscard]] std::string text() const {
    std::string result(static_cast<std::size_t>(lseek(fd, 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(fd, result.data(), result.size(), 0), static_cast<ssize_t>(result.size()));
    return result;
  }

  int fd;
};

}  // namespace entrypoint
