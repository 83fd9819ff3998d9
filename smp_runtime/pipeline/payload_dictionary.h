// SPDX-License-Identifier: Apache-2.0
// Bodies that a rank has sent to, or got from, another one before: a call that repeats names its
// body by a number. Microbatches, and steps, call the same modules with arguments of the same form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "smp_runtime/pipeline/envelope.h"

namespace smp::pipeline {

/// One rank's side of all tables. Both ends of a pair keep the same table without a word, because
/// messages arrive in the order in which they were sent: so every message must pass, also those
/// that nobody reads. Not thread-safe.
class PayloadDictionary {
 public:
  explicit PayloadDictionary(int ranks) : sent_(ranks), received_(ranks) {}

  /// In front of encode(): replaces a body that `destination` has by its number, and numbers one
  /// that it shall keep. A full table starts anew.
  void shorten(int destination, Envelope& envelope);
  /// When it is not known whether a message left: what `destination` has is forgotten, also there.
  void start_anew(int destination) { sent_.at(static_cast<size_t>(destination)) = {}; }
  /// Behind decode(): undoes it. Throws InternalError for a number that was not given.
  void restore(Envelope& envelope);

  static constexpr size_t kShortest = 32;                ///< bytes worth a place
  static constexpr size_t kMostBytes = size_t{1} << 22;  ///< in one table

 private:
  struct Sent {
    std::unordered_map<std::string, int32_t> numbers;
    size_t bytes = 0;
  };

  std::vector<Sent> sent_;                          ///< by destination
  std::vector<std::vector<std::string>> received_;  ///< by source, then number
};

}  // namespace smp::pipeline
