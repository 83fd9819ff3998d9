// SPDX-License-Identifier: Apache-2.0
// One rank's record of a job: lines of JSON, appended, so that a rank that is killed leaves all but
// the last second. docs/reference/file_formats.md describes them.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "smp_runtime/core/file_descriptor.h"

namespace smp::record {

/// [s] since 1970, as records have it.
double unix_time();

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

}  // namespace smp::record
