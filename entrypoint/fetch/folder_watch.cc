// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/folder_watch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <sys/inotify.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kEvents =
    IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_DELETE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW;

}  // namespace

FolderWatch::FolderWatch(fs::path folder)
    : folder_(std::move(folder)), events_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (!events_.is_open()) {
    throw smp::HostError("inotify: {}; raise fs.inotify.max_user_instances", std::strerror(errno));
  }
  watch_tree(folder_);
  if (folders_.empty()) throw smp::HostError("{} cannot be watched", folder_.string());
}

void FolderWatch::watch_tree(const fs::path& folder) {
  // Watch first, look then: what comes in between is seen twice, not missed.
  const int watch = inotify_add_watch(events_.get(), folder.c_str(), kEvents);
  if (watch < 0) {
    if (errno == ENOSPC) {
      SMP_LOG(warning,
              "{} is not watched: the limit fs.inotify.max_user_watches is reached; its "
              "files are uploaded when the job ends",
              folder.string());
    }
    return;
  }
  folders_[watch] = folder;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored) && !entry->is_symlink(ignored)) {
      watch_tree(entry->path());
    } else if (entry->is_regular_file(ignored)) {
      take(entry->path());
    }
  }
}

void FolderWatch::take(const fs::path& file) {
  std::erase(finished_, file);
  finished_.push_back(file);
}

std::vector<fs::path> FolderWatch::collect() {
  alignas(inotify_event) std::array<char, 64 * 1024> buffer;
  ssize_t count = 0;
  while ((count = read(events_.get(), buffer.data(), buffer.size())) > 0) {
    for (ssize_t at = 0; at < count;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      if ((event->mask & IN_Q_OVERFLOW) != 0) {
        SMP_LOG(warning, "more changes in {} than the kernel keeps: looking at all files",
                folder_.string());
        watch_tree(folder_);
        continue;
      }
      if ((event->mask & IN_IGNORED) != 0) folders_.erase(event->wd);
      const auto folder = folders_.find(event->wd);
      if (folder == folders_.end() || event->len == 0) continue;
      const fs::path path = folder->second / event->name;
      std::error_code ignored;
      if ((event->mask & IN_ISDIR) != 0) {
        watch_tree(path);
      } else if ((event->mask & (IN_CLOSE_WRITE | IN_MOVED_TO)) != 0 ||
                 fs::is_symlink(path, ignored)) {
        take(path);  // links are made complete; a file that was only created is still open
      }
    }
  }
  return std::exchange(finished_, {});
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) files.push_back(entry->path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace entrypoint::fetch
