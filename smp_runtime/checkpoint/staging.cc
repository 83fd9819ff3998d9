// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/staging.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

#include "smp_runtime/checkpoint/atomic_file.h"
#include "smp_runtime/core/error.h"

namespace smp::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStaging = ".staging";
constexpr std::string_view kCommit = ".commit";
constexpr std::string_view kOld = ".old";
constexpr const char* kManifest = "manifest.json";

[[noreturn]] void fail(const char* what, const fs::path& path, const std::string& reason) {
  throw HostError("cannot {} {}: {}", what, path.string(), reason);
}

fs::path commit_path(const fs::path& root, const std::string& name) {
  return root / fmt::format(".{}{}", name, kCommit);
}

fs::path old_path(const fs::path& root, const std::string& name) {
  return root / fmt::format(".{}{}", name, kOld);
}

void rename_path(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail("rename", from, fmt::format("to {}: {}", to.string(), error.message()));
}

std::string reason(int code) { return std::error_code(code, std::generic_category()).message(); }

// The wheel's LibTorch exports a std::filesystem of its own that is not whole: remove_all of a
// folder with files jumps to address 0 there. Hence the system's calls, here and in entries_of.
int remove_entry(const char* path, const struct stat* /*status*/, int /*type*/, FTW* /*level*/) {
  return ::remove(path);
}

/// Returns what went wrong, or 0.
int try_remove_tree(const fs::path& path) {
  constexpr int kOpenFolders = 16;
  if (::nftw(path.c_str(), remove_entry, kOpenFolders, FTW_DEPTH | FTW_PHYS) == 0) return 0;
  return errno == ENOENT ? 0 : errno;
}

void remove_tree(const fs::path& path) {
  if (const int code = try_remove_tree(path); code != 0) fail("remove", path, reason(code));
}

/// From the moment of the commit on: moves the files out; may be repeated.
void finish_commit(const fs::path& commit, const fs::path& root) {
  for (const fs::path& file : entries_of(commit)) rename_path(file, root / file.filename());
  sync_folder(root);
  remove_tree(commit);
}

/// Leftovers of killed saves: unfinished ones go, committed ones are finished, folders set aside
/// return if nothing took their place.
void tidy(const fs::path& root, const fs::path& but) {
  for (const fs::path& entry : entries_of(root)) {
    const std::string name = entry.filename().string();
    if (entry == but || name.front() != '.' || !fs::is_directory(entry)) continue;
    if (name.ends_with(kStaging)) {
      remove_tree(entry);
    } else if (name.ends_with(kCommit)) {
      finish_commit(entry, root);
    } else if (name.ends_with(kOld)) {
      const fs::path place = root / name.substr(1, name.size() - 1 - kOld.size());
      if (fs::exists(place)) {
        remove_tree(entry);
      } else {
        rename_path(entry, place);
      }
    }
  }
}

/// Exchanges two folders in one step. False where the file system cannot.
bool exchange(const fs::path& one, const fs::path& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP) return false;
  fail("rename", one, fmt::format("to {}: {}", other.string(), reason(errno)));
}

}  // namespace

fs::path staging_path(const fs::path& root, const std::string& name, const std::string& token) {
  return root / fmt::format(".{}.{}{}", name, token, kStaging);
}

bool open_staging(const fs::path& root, const std::string& name, const std::string& token,
                  bool tidies) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) fail("make", root, error.message());
  const fs::path staging = staging_path(root, name, token);
  // mkdir itself is asked, not a look before it: over a network only the server knows.
  if (::mkdir(staging.c_str(), 0777) != 0) {
    if (errno == EEXIST) return false;
    fail("make", staging, reason(errno));
  }
  if (tidies) tidy(root, staging);
  return true;
}

void publish_folder(const fs::path& root, const std::string& name, const std::string& token) {
  const fs::path staging = staging_path(root, name, token);
  const fs::path place = root / name;
  sync_folder(staging);
  if (!fs::exists(place)) {
    rename_path(staging, place);
    sync_folder(root);
    return;
  }
  if (exchange(staging, place)) {
    sync_folder(root);
    remove_tree(staging);  // now the old one
    return;
  }
  const fs::path old = old_path(root, name);
  rename_path(place, old);
  rename_path(staging, place);
  sync_folder(root);
  remove_tree(old);
}

void publish_files(const fs::path& root, const std::string& name, const std::string& token) {
  const fs::path staging = staging_path(root, name, token);
  for (const fs::path& file : entries_of(staging)) {
    const fs::path place = root / file.filename();
    if (fs::is_directory(place)) {
      fail("write", place, "a folder of that name is in the way");
    }
  }
  sync_folder(staging);
  const fs::path commit = commit_path(root, name);
  rename_path(staging, commit);
  sync_folder(root);
  finish_commit(commit, root);
}

fs::path locate(const fs::path& root, const std::string& name, const std::string& entry) {
  const fs::path committed = commit_path(root, name) / entry;
  if (fs::exists(committed)) return committed;
  fs::path place = root / entry;
  if (!fs::exists(place) && fs::exists(old_path(root, entry))) return old_path(root, entry);
  return place;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(folder.c_str()), ::closedir);
  if (!opened) fail("list", folder, reason(errno));
  std::vector<fs::path> entries;
  while (const dirent* entry = ::readdir(opened.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") entries.push_back(folder / name);
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

void discard_staging(const fs::path& root, const std::string& name,
                     const std::string& token) noexcept {
  // A failure of this one is not reported: that which brought us here is.
  try_remove_tree(staging_path(root, name, token));
}

std::vector<std::string> prune_folders(const fs::path& root, const std::string& keep, int count) {
  std::vector<std::pair<fs::file_time_type, fs::path>> others;
  for (const fs::path& entry : entries_of(root)) {
    const std::string name = entry.filename().string();
    const fs::path manifest = entry / kManifest;
    if (name == keep || name.front() == '.' || !name.ends_with(kPartial)) continue;
    std::error_code error;
    const auto written = fs::last_write_time(manifest, error);
    if (!error) others.emplace_back(written, entry);  // without a manifest it is not ours to remove
  }
  std::sort(others.rbegin(), others.rend());  // newest first
  std::vector<std::string> removed;
  for (std::size_t index = static_cast<std::size_t>(std::max(count - 1, 0)); index < others.size();
       ++index) {
    removed.push_back(others[index].second.filename().string());
    remove_tree(others[index].second);
  }
  return removed;
}

}  // namespace smp::checkpoint
