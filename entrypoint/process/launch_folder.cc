// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/launch_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace entrypoint {

LaunchFolder::LaunchFolder() : owner_(getpid()) {
  std::string reasons;
  for (const char* parent : {"/tmp", "/dev/shm"}) {
    std::string name = std::string(parent) + "/smp-launch-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) {
      path_ = name;
      return;
    }
    reasons += fmt::format(" {}: {};", parent, std::strerror(errno));
  }
  throw smp::HostError("no place for a private folder:{} mount a writable /tmp", reasons);
}

LaunchFolder::~LaunchFolder() {
  if (getpid() != owner_) return;
  std::error_code ignored;  // a leftover in /tmp is no reason to fail a job that ended well
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path LaunchFolder::write(std::string_view name, std::string_view content) const {
  const std::filesystem::path path = file(name);
  smp::replace_text(path, content, smp::kForOwner);
  return path;
}

}  // namespace entrypoint
