// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/record/record_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>

#include "smp_runtime/core/log.h"

namespace smp::record {
namespace {

constexpr std::size_t kFlushBytes = 1 << 16;
constexpr std::chrono::seconds kFlushInterval{1};

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

}  // namespace smp::record
