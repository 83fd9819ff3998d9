// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/host_identity.h"

#include <fstream>

#include <fmt/format.h>
#include <sys/stat.h>

namespace smp::transport {
namespace {

uint64_t inode(const char* path) {
  struct stat found {};
  return stat(path, &found) == 0 ? found.st_ino : 0;
}

}  // namespace

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return fmt::format("{}/{}/{}", boot, inode("/proc/self/ns/pid"), inode("/proc/self/ns/net"));
}

}  // namespace smp::transport
