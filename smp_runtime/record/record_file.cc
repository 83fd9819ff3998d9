// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/record/record_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "smp_runtime/core/file.h"
#include "smp_runtime/core/log.h"

namespace smp::record {
namespace {

constexpr std::size_t kFlushBytes = 1 << 16;
constexpr std::chrono::seconds kFlushInterval{1};

constexpr std::string_view kClosing = "\n]\n";
constexpr std::string_view kSeparator = ",\n";

/// Offset of the next event: in place of the closing bracket, or behind the last whole line where a
/// signal or a full disk cut a write short and left no bracket. 0 for a new file.
off_t end_of_events(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0 || status.st_size == 0) return 0;
  std::string tail(static_cast<std::size_t>(std::min<off_t>(status.st_size, 1 << 16)), '\0');
  const off_t from = status.st_size - static_cast<off_t>(tail.size());
  const ssize_t got = ::pread(file, tail.data(), tail.size(), from);
  if (got < 0) return 0;
  tail.resize(static_cast<std::size_t>(got));
  if (tail.ends_with(kClosing)) return from + got - static_cast<off_t>(kClosing.size());
  const std::size_t last = tail.rfind(kSeparator);
  return last == std::string::npos ? 0 : from + static_cast<off_t>(last);
}

/// Empty, or why not.
std::string append_to(const std::string& name, const std::string& events) {
  const FileDescriptor file(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.is_open() || ::flock(file.get(), LOCK_EX) != 0) return std::strerror(errno);
  const off_t end = end_of_events(file.get());
  std::string text(end == 0 ? "[\n" : kSeparator);
  text.append(events, 0, events.size() - kSeparator.size());
  text.append(kClosing);
  const ssize_t written = ::pwrite(file.get(), text.data(), text.size(), end);
  if (written < 0) return std::strerror(errno);
  if (written == static_cast<ssize_t>(text.size())) return "";
  // As it was, so that it can be read.
  if (::ftruncate(file.get(), end) == 0 && end > 0) {
    [[maybe_unused]] const ssize_t closed =
        ::pwrite(file.get(), kClosing.data(), kClosing.size(), end);
  }
  return "the disk is full";
}

}  // namespace

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

RecordFile::RecordFile(std::string name) : name_(std::move(name)) {
  if (name_.empty()) return;
  std::error_code failed;  // opening says the same
  std::filesystem::create_directories(std::filesystem::path(name_).parent_path(), failed);
  file_ = FileDescriptor(
      ::open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.is_open()) fail(std::strerror(errno));
}

void RecordFile::add(std::string_view line) {
  if (!file_.is_open()) return;
  lines_.append(line);
  lines_.push_back('\n');
  const auto now = std::chrono::steady_clock::now();
  if (lines_.size() >= kFlushBytes || now - flushed_ >= kFlushInterval) flush();
}

void RecordFile::flush() {
  if (!file_.is_open() || lines_.empty()) return;
  flushed_ = std::chrono::steady_clock::now();
  const ssize_t written = ::write(file_.get(), lines_.data(), lines_.size());
  if (written != static_cast<ssize_t>(lines_.size())) {
    fail(written < 0 ? std::strerror(errno) : "the disk is full");
  }
  lines_.clear();
}

void RecordFile::close() {
  flush();
  file_.close();
}

void RecordFile::fail(const char* what) {
  SMP_LOG(warning, "{}: what this rank does is not recorded any more: {}", name_, what);
  file_.close();
}

void TimelineFile::append(const std::string& events) {
  if (name_.empty() || events.empty()) return;
  const std::string problem = append_to(name_, events);
  if (problem.empty()) return;
  SMP_LOG(warning, "{}: the timeline cannot be written and ends here: {}", name_, problem);
  name_.clear();
}

}  // namespace smp::record
