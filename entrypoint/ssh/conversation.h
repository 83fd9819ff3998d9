// SPDX-License-Identifier: Apache-2.0
// Conversations of two hosts in lines, which each proves to be of the job where it has a secret.
//
// With a secret each line ends in a code, in hexadecimal, over its side, all lines before it and
// itself; the first line of a side has a nonce before its code. So nobody else can say a line, turn
// one back to its sender, or repeat a conversation that he has overheard.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "smp_runtime/core/callers.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/job_secret.h"

namespace entrypoint {

namespace tcp = smp::tcp;
using smp::Clock;
using smp::Deadline;

enum class Side : char { kMaster = 'M', kWorker = 'W' };

/// Bytes that a code and a nonce add to a line.
inline constexpr std::size_t kSealBytes = 2 * (1 + 2 * sizeof(smp::Mac));

/// A line that does not prove to be of the job.
struct UnprovedLine : smp::HostError {
  using HostError::HostError;
};

class Conversation {
 public:
  using Secret = std::optional<smp::JobSecret>;

  /// This host is `own`. Without a secret lines go as they are.
  Conversation(tcp::Connection connection, Side own, const Secret& secret);
  /// With a caller that was greeted by what greeting() gave, and whose first words are a line.
  Conversation(tcp::Callers::Caller caller, Side own, const Secret& secret);

  /// The first line, as callers are greeted with it.
  [[nodiscard]] static std::string greeting(std::string_view line, Side own, const Secret& secret);
  /// Rules for callers whose first words are a line of at most `longest` bytes. Users add `greet`.
  [[nodiscard]] static tcp::Callers::Rules rules(std::size_t longest,
                                                 std::chrono::milliseconds limit);

  /// Throws HostError.
  void say(std::string_view line, Deadline deadline);
  /// The next line, without its code. Throws HostError for one of more than `longest` bytes, and
  /// with a secret UnprovedLine.
  std::string hear(std::size_t longest, Deadline deadline);
  /// The same for the first line, which may be a server's that is no launcher: such a one, without
  /// `prefix`, is returned as it is.
  std::string hear_first(std::string_view prefix, std::size_t longest, Deadline deadline);

  [[nodiscard]] tcp::Connection& connection() { return connection_; }

 private:
  [[nodiscard]] std::string seal(std::string_view line);
  [[nodiscard]] std::string open(std::string_view line);
  void remember(Side side, std::string_view sealed);

  tcp::Connection connection_;
  Side own_;
  std::optional<smp::MacKey> key_;
  std::optional<std::string> heard_;  // by Callers
  std::string transcript_;            // lines with their codes, each behind its side
};

}  // namespace entrypoint
