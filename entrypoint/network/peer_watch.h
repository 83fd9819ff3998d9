// SPDX-License-Identifier: Apache-2.0
// Notices that a host of the job has vanished: Open MPI sees that only after minutes.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace entrypoint {

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

}  // namespace entrypoint
