// SPDX-License-Identifier: Apache-2.0
// A file in Chrome's Trace Event Format, which https://ui.perfetto.dev opens: an array with one
// event a line, to which the ranks of a host append.
//
// The array is closed at every moment: each append writes over the closing bracket, in one write
// and under a lock of the file, so that a rank that is killed takes nothing of the others with it.
#pragma once

#include <string>
#include <utility>

namespace smp::record {

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
