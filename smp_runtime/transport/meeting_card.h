// SPDX-License-Identifier: Apache-2.0
// A rank's description of itself in a Meeting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace smp::transport {

struct MeetingCard {
  std::string nonce;      ///< of this coming; no other one has it
  std::string host;       ///< host_identity()
  std::string host_name;  ///< for messages
  int64_t process = 0;
  int64_t began_ms = 0;  ///< its process, by the clock of its host, since 1970
  int64_t came_ms = 0;   ///< itself, likewise
  int failed = -1;       ///< the rank that cannot take part, this or another one; -1: none
  std::string reason;    ///< why not

  /// Makes the card of this process, now.
  static MeetingCard fresh(const std::string& host);
  /// None for what is no card.
  static std::optional<MeetingCard> parse(std::string_view text);
  [[nodiscard]] std::string text() const;

  [[nodiscard]] bool same_process(const MeetingCard& other) const {
    return process == other.process && host == other.host && began_ms == other.began_ms;
  }
  /// For messages.
  [[nodiscard]] std::string whose() const;
};

}  // namespace smp::transport
