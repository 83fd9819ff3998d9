// SPDX-License-Identifier: Apache-2.0
// Files to which a recorder appends, so that a rank that is killed leaves all but the last second:
// the rank's record and the timeline of its host.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "smp_runtime/core/file.h"

namespace smp::record {

/// [s] since 1970, as records have it.
double unix_time();

/// One rank's record of a job: lines of JSON, which docs/reference/file_formats.md describes.
class RecordFile {
 public:
  /// Replaces a file of that name and makes its folder. An empty name: nothing is kept. Where it
  /// cannot be written, one warning says so and nothing more is kept.
  explicit RecordFile(std::string name);
  ~RecordFile() { close(); }
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  [[nodiscard]] bool is_open() const { return file_.is_open(); }

  /// A line without its end. Written a second later at the latest, if lines go on coming.
  void add(std::string_view line);
  void flush();
  void close();

 private:
  void fail(const char* what);

  std::string name_;
  FileDescriptor file_;
  std::string lines_;
  std::chrono::steady_clock::time_point flushed_;
};

/// A file in Chrome's Trace Event Format, which https://ui.perfetto.dev opens: an array with one
/// event a line, to which the ranks of a host append. The array is closed at every moment: each
/// append writes over the closing bracket, in one write and under a lock of the file, so that a
/// rank that is killed takes nothing of the others with it.
class TimelineFile {
 public:
  /// Nothing is opened before the first append(). An empty name: none is kept.
  explicit TimelineFile(std::string name) : name_(std::move(name)) {}

  [[nodiscard]] bool is_open() const { return !name_.empty(); }

  /// Adds events, each of which ends in ",\n". Waits while another rank writes. Where the file
  /// cannot be written one warning says so, and it is not open any more: a picture is not worth a
  /// job.
  void append(const std::string& events);
  void close() { name_.clear(); }

 private:
  std::string name_;
};

}  // namespace smp::record
