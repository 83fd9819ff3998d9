// SPDX-License-Identifier: Apache-2.0
// Both ends of a pipe.
#pragma once

#include "smp_runtime/core/file_descriptor.h"

namespace entrypoint::launch {

using smp::FileDescriptor;

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

/// Both ends close on exec. Throws HostError.
Pipe make_pipe();

}  // namespace entrypoint::launch
