// SPDX-License-Identifier: Apache-2.0
// What a failure detector knows of another rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smp_runtime/transport/fabric/detector_connection.h"
#include "smp_runtime/transport/fabric/failure_detector.h"

namespace smp::transport {

/// Guarded by the detector's lock, but for the connection.
struct FailureDetector::PeerState {
  Peer peer;
  std::optional<DetectorConnection> connection;  // none to one of whom the hub tells
  bool leaves = false;                           // it has sent FIN
  uint64_t left_after = 0;
  bool handed_on = false;  // its FIN, by the hub
  uint64_t answered = 0;   // collectives, by us
  uint64_t done = 0;       // collectives, of it and those for whom it is the hub, as far as told
  bool broken = false;     // it was told of a failure, or told one: its end is no news
  bool gone = false;       // the connection has ended
  std::string failure;     // and it was to go on
};

}  // namespace smp::transport
