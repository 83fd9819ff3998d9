// SPDX-License-Identifier: Apache-2.0
// Event files, which TensorBoard reads: records of TensorFlow with protobuf messages in them,
// written without either library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace smp::metrics {

/// A point of a curve.
struct ScalarEvent {
  std::string tag;  ///< of the curve: "train/loss"
  float value = 0;
  std::int64_t step = 0;
  double time = 0;  ///< [s] since 1970
};

/// One file of a folder's events. Members throw HostError with the path and the system's reason.
class EventFile {
 public:
  /// Makes the folder where it is missing, and in it a file of a new name, which says `time`
  /// [s since 1970], the host and the process.
  EventFile(const std::filesystem::path& folder, double time);

  /// Writes them behind the others; whoever opens the file then finds them.
  void append(std::span<const ScalarEvent> events) const;

 private:
  const std::filesystem::path path_;
};

}  // namespace smp::metrics
