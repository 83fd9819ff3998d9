// SPDX-License-Identifier: Apache-2.0
// A helper process: a fork of this one that runs one function and writes what comes of it.
#pragma once

#include <functional>

#include <sys/types.h>

#include "entrypoint/launch/process/file_descriptor.h"
#include "entrypoint/launch/process/process_runner.h"

namespace entrypoint::supervise {

struct HelperChild {
  pid_t pid;
  launch::FileDescriptor result;  ///< what the helper writes, up to its end
};

/// Forks; `in_child` is called there first. The child leads a process group of its own, dies with
/// this process, and exits with code 1 when the work throws, whose text is the result then. Throws
/// HostError when there can be no process.
HelperChild start_helper(const launch::HelperProcess& helper,
                         const std::function<void()>& in_child);

}  // namespace entrypoint::supervise
