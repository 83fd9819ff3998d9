// SPDX-License-Identifier: Apache-2.0
// Whether the kernel killed something for memory: a SIGKILL alone does not say so.
#pragma once

#include <filesystem>
#include <optional>

namespace entrypoint {

/// How often the kernel killed a process of this container for memory, from cgroup v2's
/// memory.events or v1's memory.oom_control; none when neither can be read. Compare a value from
/// before the job with one from after it.
std::optional<long> oom_kills(const std::filesystem::path& proc = "/proc",
                              const std::filesystem::path& cgroups = "/sys/fs/cgroup");

}  // namespace entrypoint
