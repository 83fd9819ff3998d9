// SPDX-License-Identifier: Apache-2.0
// How a thread of the host waits for a place in a device's work: with a limit, and looking around.
#pragma once

#include <functional>

#include "smp_runtime/cuda/stream_mark.h"
#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

/// `look_around` is called now and then and may throw, which ends the wait. Throws HostError when
/// the limit passes first.
void await(const cuda::StreamMark& mark, const WaitLimit& limit,
           const std::function<void()>& look_around);

}  // namespace smp::transport
