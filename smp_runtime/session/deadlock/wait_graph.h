// SPDX-License-Identifier: Apache-2.0
// Graph of ranks that wait for each other, and the search for those that can never go on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/core/error.h"

namespace smp::session {

/// Ranks are in calls that wait for each other; the text names them.
class CallMismatch : public UserCodeError {
  using UserCodeError::UserCodeError;
};

/// Ranks that were waited for did not come; the text names them.
class WaitTimeout : public HostError {
  using HostError::HostError;
};

/// One rank's wait, as it tells the others while it waits for them.
struct Wait {
  std::int64_t number = 0;  ///< of this rank's waits; another one is another wait
  std::string label;        ///< of the call, equal on all ranks that make it
  std::int64_t turn = 0;    ///< which of the calls of its label it is, from 1
  std::string text;         ///< the call and the line of the script, for people
  std::vector<int> needs;   ///< ranks of the job without which the call does not end
  bool ended = false;       ///< the rank has left the job and makes no call any more
  std::string mismatch;  ///< what it was told of a mismatch, after which it begins no call either
  /// How many calls of each label the rank has begun so far.
  std::map<std::string, std::int64_t> begun;

  bool operator==(const Wait&) const = default;
};

/// As JSON; decode() gives nothing for a text that encode() did not make.
std::string encode(const Wait& wait);
std::optional<Wait> decode(std::string_view text);

/// True if `other` has yet to begin the call that `wait` is in.
[[nodiscard]] bool is_missing(const Wait& wait, const Wait& other);
/// True if the rank begins no call any more: its counts of begun calls stay as they are.
[[nodiscard]] bool is_final(const Wait& wait);

/// The ranks, `rank` first, each of which waits for the next, where the last one waits for one of
/// them or is_final(): none of them can go on. Empty where there is no such path. A rank waits for
/// another one that has begun fewer calls of that label than its turn. Ranks without an entry
/// may still come. Pure.
std::vector<int> deadlock_of(const std::map<int, Wait>& waits, int rank);

/// One sentence on what each rank of such a path does; where the last one was told of a mismatch,
/// that text.
std::string deadlock_text(const std::map<int, Wait>& waits, const std::vector<int>& path);

}  // namespace smp::session
