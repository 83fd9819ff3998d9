// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/launch_folder.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace entrypoint {
namespace {

constexpr std::string_view kName = "smp-launch-";
constexpr std::chrono::minutes kTimeToLock{1};

/// Not open where somebody holds the folder, or it is not ours.
smp::FileDescriptor hold(const std::filesystem::path& folder) {
  smp::FileDescriptor held(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));  // NOLINT
  struct stat facts {};
  const bool ours = held.is_open() && fstat(held.get(), &facts) == 0 && facts.st_uid == geteuid();
  if (!ours || flock(held.get(), LOCK_EX | LOCK_NB) != 0) held.close();
  return held;
}

}  // namespace

LaunchFolder::LaunchFolder(std::initializer_list<const char*> places) : owner_(getpid()) {
  std::string reasons;
  for (const char* place : places) {
    std::string name = std::string(place) + "/" + std::string(kName) + "XXXXXX";
    if (mkdtemp(name.data()) != nullptr) {
      path_ = name;
      held_ = hold(path_);
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

void LaunchFolder::remove_abandoned(const std::filesystem::path& place) {
  std::error_code error;  // what cannot be read or removed stays
  const auto old = std::filesystem::file_time_type::clock::now() - kTimeToLock;
  for (const auto& entry : std::filesystem::directory_iterator(place, error)) {
    if (!entry.path().filename().string().starts_with(kName)) continue;
    const auto written = entry.last_write_time(error);
    if (error || written > old) continue;
    if (const smp::FileDescriptor held = hold(entry.path()); held.is_open()) {
      std::filesystem::remove_all(entry.path(), error);
    }
  }
}

std::filesystem::path LaunchFolder::write(std::string_view name, std::string_view content) const {
  const std::filesystem::path path = file(name);
  smp::replace_text(path, content, smp::kForOwner);
  return path;
}

}  // namespace entrypoint
