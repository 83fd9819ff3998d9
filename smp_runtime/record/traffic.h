// SPDX-License-Identifier: Apache-2.0
// Traffic of a rank to each other one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "smp_runtime/record/record_file.h"

namespace smp::record {

/// So far: messages, and bytes of tensors without the headers of the wire.
class Traffic {
 public:
  void add(int rank, std::int64_t bytes);

  [[nodiscard]] bool changed() const { return changed_; }

  /// A record's line, `{"traffic": [[rank, messages, bytes], …]}`, of all of it: the last one
  /// counts. Nothing is changed from then on.
  std::string take_line();

 private:
  struct Sent {
    std::int64_t messages = 0;
    std::int64_t bytes = 0;
  };
  std::map<int, Sent> sent_;
  bool changed_ = false;
};

/// A file with the traffic of one group of ranks, for processes that record no steps. Not
/// thread-safe.
class TrafficRecord {
 public:
  /// `rank` of the job; `host` as the job names it.
  TrafficRecord(std::string name, int rank, const std::string& host);

  /// The same to each of `ranks` but this one: a part of a collective. Writes once a second at
  /// most.
  void sent(std::span<const int> ranks, std::int64_t bytes);
  void flush();

 private:
  int rank_;
  RecordFile file_;
  Traffic traffic_;
  std::chrono::steady_clock::time_point due_;
};

}  // namespace smp::record
