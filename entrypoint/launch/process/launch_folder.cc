// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/launch/process/launch_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "entrypoint/launch/process/file_descriptor.h"
#include "smp_runtime/core/error.h"

namespace entrypoint::launch {

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
  write_private_file(path, content);
  return path;
}

void write_private_file(const std::filesystem::path& path, std::string_view content) {
  // Hosts of a job may share the folder, and write it at the same time.
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const std::string unfinished = fmt::format("{}.{}-{}.part", path.string(), host, getpid());
  const auto fail = [&](const char* step) {
    throw smp::HostError("{}: {}: {}; check free space and permissions", path.string(), step,
                         std::strerror(errno));
  };
  FileDescriptor file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.is_open()) fail("open");
  while (!content.empty()) {
    const ssize_t count = write(file.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("write");
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  file.close();
  if (rename(unfinished.c_str(), path.c_str()) != 0) fail("rename");
}

std::string read_small_file(const std::filesystem::path& path) {
  // Not by stream iterators: of a folder, which opens well, the first read would throw.
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace entrypoint::launch
