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

LaunchFolder::LaunchFolder(std::initializer_list<const char*> places) : owner_(getpid()) {
  std::string reasons;
  for (const char* place : places) {
    std::string name = std::string(place) + "/smp-launch-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) {
      path_ = name;
      return;
    }
    reasons += fmt::format(" {}: {};", place, std::strerror(errno));
  }
  throw smp::HostError("no place for a private folder:{} mount a writable {}", reasons,
                       *places.begin());
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
