// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/record/timeline_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "smp_runtime/core/file_descriptor.h"
#include "smp_runtime/core/log.h"

namespace smp::record {
namespace {

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

void TimelineFile::append(const std::string& events) {
  if (name_.empty() || events.empty()) return;
  const std::string problem = append_to(name_, events);
  if (problem.empty()) return;
  SMP_LOG(warning, "{}: the timeline cannot be written and ends here: {}", name_, problem);
  name_.clear();
}

}  // namespace smp::record
