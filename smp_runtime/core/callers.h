// SPDX-License-Identifier: Apache-2.0
// Callers of a listener, heard side by side until each has said its first words: a stranger that
// connects and says nothing keeps nobody waiting.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "smp_runtime/core/tcp.h"

namespace smp::tcp {

/// For one thread. Keeps at most 16 callers of one host and 256 of all who have not said their
/// words, and as many more as are expected: then the one that has taken longest is dropped.
class Callers {
 public:
  struct Rules {
    std::chrono::milliseconds limit;  ///< from the connection to the end of the first words
    std::size_t longest;              ///< of these [bytes]
    std::function<bool(std::string_view)> is_whole;
    /// Words for a caller before it speaks, none to turn it away. Without a function it is told
    /// nothing.
    std::function<std::optional<std::string>(const Connection&)> greet{};
    std::size_t expected = 0;  ///< callers who may come at once
  };

  struct Caller {
    Connection connection;
    std::string told;   ///< what `greet` said
    std::string heard;  ///< the first words, up to what made them whole
  };

  Callers(Listener& listener, Rules rules) : listener_(listener), rules_(std::move(rules)) {}

  /// Blocks until a caller has said its first words; none at the deadline. Throws HostError where
  /// the listener fails; a caller that fails is dropped.
  std::optional<Caller> next(Deadline deadline);

 private:
  struct Waiting {
    Caller caller;
    Deadline deadline;
  };

  void take_all();
  void drop_late(const Connection& newest);
  /// False: it is of no use any more.
  bool hear(Waiting& one) const;

  Listener& listener_;
  Rules rules_;
  std::list<Waiting> waiting_;  // in the order in which they came
};

}  // namespace smp::tcp
