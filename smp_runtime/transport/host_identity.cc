// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/host_identity.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/text.h"

namespace smp::transport {
namespace {

uint64_t inode(const char* path) {
  struct stat found {};
  return stat(path, &found) == 0 ? found.st_ino : 0;
}

std::string boot_identity() {
  constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
  std::array<char, 64> text{};
  const FileDescriptor file(open(kPath, O_RDONLY | O_CLOEXEC));
  const ssize_t count = file.is_open() ? read(file.get(), text.data(), text.size()) : -1;
  // Without it a host would take itself for another one.
  if (count < 0) throw HostError("cannot read {}: {}", kPath, system_error_text(errno));
  return std::string(trimmed({text.data(), static_cast<size_t>(count)}));
}

}  // namespace

std::string host_identity() {
  return fmt::format("{}/{}/{}", boot_identity(), inode("/proc/self/ns/pid"),
                     inode("/proc/self/ns/net"));
}

std::string network_identity() {
  return fmt::format("{}/{}", boot_identity(), inode("/proc/self/ns/net"));
}

}  // namespace smp::transport
