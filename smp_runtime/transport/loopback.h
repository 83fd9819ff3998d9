// SPDX-License-Identifier: Apache-2.0
// A transport between threads of one process: ranks of unit tests, and a group of one rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "smp_runtime/transport/inbox.h"
#include "smp_runtime/transport/transport.h"

namespace smp::transport {

/// `size` connected endpoints, which may outlive it.
class LoopbackNetwork {
 public:
  explicit LoopbackNetwork(int size);

  /// The end of rank `rank`; each is to be used by one thread for receiving.
  [[nodiscard]] std::unique_ptr<Transport> endpoint(int rank);

  /// Behaves as if the process of `rank` had died: the others' next receive throws.
  void lose(int rank);

 private:
  class Endpoint;
  using Inboxes = std::vector<std::unique_ptr<Inbox>>;
  std::shared_ptr<Inboxes> inboxes_;
};

}  // namespace smp::transport
