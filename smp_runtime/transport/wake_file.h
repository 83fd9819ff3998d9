// SPDX-License-Identifier: Apache-2.0
// Wakes a thread that sleeps in poll().
#pragma once

#include <cerrno>

#include <sys/eventfd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace smp::transport {

/// An eventfd that does not block. Throws HostError.
inline FileDescriptor make_wake_file() {
  FileDescriptor file(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!file.is_open()) throw HostError("eventfd failed: {}", system_error_text(errno));
  return file;
}

}  // namespace smp::transport
