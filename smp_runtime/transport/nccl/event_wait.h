// SPDX-License-Identifier: Apache-2.0
// Waits for an event of a device's stream in a thread of the CPU, with a limit.
#pragma once

#include <functional>

#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

/// `look_around` is called now and then and may throw, which ends the wait. Throws HostError when
/// the limit passes first.
void await(const cuda::StreamEvent& event, const WaitLimit& limit,
           const std::function<void()>& look_around);

}  // namespace smp::transport
