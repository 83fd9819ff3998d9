// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/folder_writer.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <deque>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint::fetch {
namespace {

bool is_drive(std::string_view segment) {
  return segment.size() >= 2 && segment[1] == ':' &&
         std::isalpha(static_cast<unsigned char>(segment[0])) != 0;
}

using smp::FileDescriptor;

constexpr mode_t kPermissions = 0777;  // no set-user-ID, set-group-ID or sticky bit
constexpr mode_t kOwnerOfFolder = 0700;
constexpr mode_t kNewFolder = 0755;
constexpr std::size_t kMostWarnings = 100;

FileDescriptor open_folder(int parent, const char* name) {
  return FileDescriptor(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

void prepend_segments(std::deque<std::string>& todo, const std::string& path) {
  std::vector<std::string> segments;
  for (const auto& part : std::filesystem::path(path)) segments.push_back(part.string());
  todo.insert(todo.begin(), segments.begin(), segments.end());
}

/// Walks like the kernel does, with what is not there taken for a folder that may come.
bool resolves_inside(int root, const std::string& link) {
  constexpr int kMostLinks = 40;  // the kernel's own limit
  std::deque<std::string> todo;
  prepend_segments(todo, link);
  std::vector<std::string> at;
  int links = 0;
  while (!todo.empty()) {
    const std::string segment = todo.front();
    todo.pop_front();
    if (segment.empty() || segment == ".") continue;
    if (segment == "..") {
      if (at.empty()) return false;
      at.pop_back();
      continue;
    }
    at.push_back(segment);
    std::string path;
    for (const std::string& part : at) path += (path.empty() ? "" : "/") + part;
    std::string target(PATH_MAX, '\0');
    const ssize_t size = readlinkat(root, path.c_str(), target.data(), target.size());
    if (size < 0) continue;
    target.resize(static_cast<std::size_t>(size));
    if (++links > kMostLinks || target.starts_with('/')) return false;
    at.pop_back();
    prepend_segments(todo, target);
  }
  return true;
}

}  // namespace

MemberPath harmless_path(std::string_view name) {
  name = name.substr(0, name.find('\0'));
  std::string text(name);
  std::ranges::replace(text, '\\', '/');
  MemberPath result{.changed = text != name || text.starts_with('/')};
  for (const std::string& part : smp::split(text, '/')) {
    std::string_view segment = part;
    while (is_drive(segment)) {
      segment.remove_prefix(2);
      result.changed = true;
    }
    if (segment == "..") result.changed = true;
    if (segment.empty() || segment == "." || segment == "..") continue;
    if (!result.path.empty()) result.path += '/';
    result.path += segment;
  }
  return result;
}

bool stays_inside(std::string_view link, std::string_view target) {
  if (target.empty() || target.front() == '/' || target.find('\0') != std::string_view::npos) {
    return false;
  }
  long depth = std::ranges::count(link, '/');  // of the folder that holds the link
  for (const std::string& segment : smp::split(target, '/')) {
    if (segment.empty() || segment == ".") continue;
    depth += segment == ".." ? -1 : 1;
    if (depth < 0) return false;
  }
  return true;
}

FolderWriter::FolderWriter(std::filesystem::path folder)
    : folder_(std::move(folder)), root_(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!root_.is_open()) throw smp::HostError("{}: {}", folder_.string(), std::strerror(errno));
}

void FolderWriter::warn(std::string text) {
  if (warnings_.size() < kMostWarnings) warnings_.push_back(std::move(text));
}

void FolderWriter::check_disk(const std::string& path, int error) const {
  if (error != ENOSPC && error != EDQUOT && error != EIO && error != EROFS && error != EMFILE &&
      error != ENFILE && error != ENOMEM) {
    return;
  }
  throw smp::HostError("{}: {}", (folder_ / path).string(), std::strerror(error));
}

std::optional<FolderWriter::Place> FolderWriter::open_place(const std::string& path) {
  Place place{.parent = FileDescriptor(fcntl(root_.get(), F_DUPFD_CLOEXEC, 0))};
  std::size_t begin = 0;
  for (std::size_t slash = 0; (slash = path.find('/', begin)) != std::string::npos;
       begin = slash + 1) {
    const std::string name = path.substr(begin, slash - begin);
    const int made = mkdirat(place.parent.get(), name.c_str(), kNewFolder);
    int error = made != 0 ? errno : 0;
    FileDescriptor next = open_folder(place.parent.get(), name.c_str());
    if (!next.is_open()) {
      if (error == 0 || error == EEXIST) error = errno;
      check_disk(path, error);
      warn(fmt::format("{}: left out: {}: {}", path, path.substr(0, slash), std::strerror(error)));
      return std::nullopt;
    }
    place.parent = std::move(next);
  }
  place.name = path.substr(begin);
  return place;
}

void FolderWriter::add_folder(const std::string& path, mode_t mode) {
  const auto place = open_place(path);
  if (!place) return;
  const mode_t wanted = (mode & kPermissions) | kOwnerOfFolder;
  if (mkdirat(place->parent.get(), place->name.c_str(), wanted) != 0 && errno != EEXIST) {
    check_disk(path, errno);
    warn(fmt::format("{}: left out: {}", path, std::strerror(errno)));
    return;
  }
  const FileDescriptor folder = open_folder(place->parent.get(), place->name.c_str());
  if (!folder.is_open()) {
    warn(fmt::format("{}: left out: a file or link of that name is there", path));
    return;
  }
  fchmod(folder.get(), wanted);
}

void FolderWriter::add_file(const std::string& path, mode_t mode, time_t modified, off_t size,
                            const Source& source) {
  const auto place = open_place(path);
  if (!place) return;
  links_.erase(path);  // the later of two members of one name counts
  unlinkat(place->parent.get(), place->name.c_str(), 0);
  const FileDescriptor file(openat(place->parent.get(), place->name.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) {
    const int error = errno;
    check_disk(path, error);
    warn(fmt::format("{}: left out: {}", path, std::strerror(error)));
    return;
  }
  while (const std::optional<Piece> piece = source()) {
    std::span<const char> left = piece->bytes;
    off_t offset = piece->offset;
    while (!left.empty()) {
      const ssize_t count = pwrite(file.get(), left.data(), left.size(), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const int error = errno;
        check_disk(path, error);
        warn(fmt::format("{}: cut off: {}", path, std::strerror(error)));
        return;
      }
      left = left.subspan(static_cast<std::size_t>(count));
      offset += count;
    }
  }
  if (ftruncate(file.get(), size) != 0) check_disk(path, errno);
  fchmod(file.get(), mode & kPermissions);
  const struct timespec times[2] = {{.tv_sec = modified, .tv_nsec = 0},
                                    {.tv_sec = modified, .tv_nsec = 0}};
  futimens(file.get(), times);
}

void FolderWriter::add_symbolic_link(const std::string& path, const std::string& target) {
  if (!stays_inside(path, target)) {
    warn(fmt::format("{}: left out: a link to {}, outside the code folder", path, target));
    return;
  }
  links_[path] = target;
}

void FolderWriter::add_hard_link(const std::string& path, const std::string& target) {
  if (path == target) return;
  if (const auto link = links_.find(target); link != links_.end()) {
    add_symbolic_link(path, link->second);
    return;
  }
  const auto from = open_place(target);
  const auto to = open_place(path);
  if (!from || !to) return;
  links_.erase(path);
  unlinkat(to->parent.get(), to->name.c_str(), 0);
  // A link that was there before would lead who knows where.
  struct stat what {};
  const bool is_file =
      fstatat(from->parent.get(), from->name.c_str(), &what, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(what.st_mode);
  if (!is_file ||
      linkat(from->parent.get(), from->name.c_str(), to->parent.get(), to->name.c_str(), 0) != 0) {
    warn(fmt::format("{}: left out: a hard link to {}, which is no file of this archive", path,
                     target));
  }
}

void FolderWriter::finish() {
  std::vector<std::string> made;
  for (const auto& [path, target] : links_) {
    const auto place = open_place(path);
    if (!place) continue;
    unlinkat(place->parent.get(), place->name.c_str(), 0);
    if (symlinkat(target.c_str(), place->parent.get(), place->name.c_str()) == 0) {
      made.push_back(path);
    } else {
      check_disk(path, errno);
      warn(fmt::format("{}: left out: {}", path, std::strerror(errno)));
    }
  }
  // One link may lead outside through another; without it, others may do so that did not before.
  for (bool removed = true; removed;) {
    removed = std::erase_if(made, [this](const std::string& path) {
                if (resolves_inside(root_.get(), path)) return false;
                warn(fmt::format("{}: left out: a link that leads outside the code folder", path));
                if (const auto place = open_place(path)) {
                  unlinkat(place->parent.get(), place->name.c_str(), 0);
                }
                return true;
              }) > 0;
  }
  links_.clear();
}

}  // namespace entrypoint::fetch
