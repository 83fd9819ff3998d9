// SPDX-License-Identifier: Apache-2.0
// Threads with a name, as debuggers and top show it.
#pragma once

#include <functional>
#include <thread>

namespace smp {

/// Starts one; of `name` 15 characters count. Throws HostError where the system makes no more, with
/// the limits of processes and threads: EAGAIN alone tells nobody what to raise.
[[nodiscard]] std::thread named_thread(const char* name, std::function<void()> body);

}  // namespace smp
