// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/file.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"

namespace smp {
namespace {

/// 0, or the errno of what failed, opening included.
int try_to_write(FileDescriptor file, std::string_view text) {
  if (!file.is_open()) return errno;
  if (const int code = write_all(file.get(), text)) return code;
  // Some file systems tell only here that the disk is full.
  return ::close(file.release()) == 0 ? 0 : errno;
}

void check_written(const std::filesystem::path& path, int code) {
  if (code == 0) return;
  throw HostError("cannot write {}: {}", path.string(),
                  std::error_code(code, std::generic_category()).message());
}

/// Held over a fork, so that the child finds the set whole.
std::mutex forking;  // guards what follows
std::set<int>& parent_only() {
  static auto* const made = new std::set<int>;  // for children of destructors, too
  return *made;
}

void give_up_in_child() {
  if (!parent_only().empty()) {
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int file : parent_only()) {
      // Without a free number the file is closed all the same.
      if (nothing < 0 || dup3(nothing, file, O_CLOEXEC) < 0) close(file);
    }
    if (nothing >= 0) close(nothing);
    parent_only().clear();
  }
  forking.unlock();
}

void watch_forks() {
  static const int watched =
      pthread_atfork([] { forking.lock(); }, [] { forking.unlock(); }, &give_up_in_child);
  static_cast<void>(watched);
}

}  // namespace

FileDescriptor make_wake_file() {
  FileDescriptor file(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!file.is_open()) throw HostError("eventfd failed: {}", system_error_text(errno));
  return file;
}

std::string read_text(const std::filesystem::path& path) {
  // Not by stream iterators: of a folder, which opens well, or of a process that has just ended,
  // the first read would throw.
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

void append_text(const std::filesystem::path& path, std::string_view text) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  FileDescriptor file(::open(path.c_str(), kFlags, kForEverybody));
  check_written(path, try_to_write(std::move(file), text));
}

Draft open_draft(const std::filesystem::path& path, std::string_view ending, mode_t mode) {
  std::uint64_t number = 0;
  if (::getentropy(&number, sizeof(number)) != 0) return {};
  Draft draft{.path = path.parent_path() /
                      fmt::format(".{}.{:016x}.{}", path.filename().string(), number, ending)};
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  draft.file = FileDescriptor(::open(draft.path.c_str(), kFlags, mode));
  return draft;
}

void replace_text(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  Draft draft = open_draft(path, "part", mode);
  int code = try_to_write(std::move(draft.file), text);
  if (code == 0 && std::rename(draft.path.c_str(), path.c_str()) != 0) code = errno;
  if (code != 0) ::unlink(draft.path.c_str());
  check_written(path, code);
}

ParentOnlyFile::ParentOnlyFile(int file) : file_(file) {
  watch_forks();
  const std::lock_guard lock(forking);
  parent_only().insert(file);
}

ParentOnlyFile::~ParentOnlyFile() {
  const std::lock_guard lock(forking);
  parent_only().erase(file_);
}

}  // namespace smp
