// SPDX-License-Identifier: Apache-2.0
// The way to other hosts of the job: the address of a name, the interface that leads there, and
// whether the host still answers.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

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

struct WatchRequest {
  std::vector<std::string> hosts;
  int port = 22;
  std::chrono::milliseconds period{5000};  ///< between two looks
  std::chrono::milliseconds limit{3000};   ///< for one look
  int misses = 3;                          ///< in a row, then the host is lost
};

/// Looks at every host's ssh port, all at the same time, until one of them is lost. Returns the
/// sentence that says which and why. Blocks as long as all is well: run it as a helper process and
/// end it with a signal.
std::string watch_hosts(const WatchRequest& request);

/// The hosts that do not answer as often in a row as the request says. Blocks for at most so many
/// times a look and a period.
std::vector<std::string> silent_hosts(const WatchRequest& request);

}  // namespace entrypoint
