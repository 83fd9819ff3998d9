// SPDX-License-Identifier: Apache-2.0
// A host name's address, asked for while the asker does something else.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace entrypoint {

/// The resolver has no deadline of its own and may take many seconds on a broken network, so a
/// thread asks it, which is left behind when nobody waits any longer.
class NameLookup {
 public:
  explicit NameLookup(const std::string& host);

  /// True if the name has an address; waits for the answer for at most `timeout`.
  [[nodiscard]] bool resolves(std::chrono::milliseconds timeout) const;

  /// The interface through which the host is reached, by IPv4 where its name has such an address;
  /// empty when its name does not resolve within `timeout` or no route leads there. Sends nothing
  /// to the host. Throws HostError.
  [[nodiscard]] std::string route(std::chrono::milliseconds timeout) const;

 private:
  struct Answer;
  std::shared_ptr<Answer> answer_;
};

}  // namespace entrypoint
