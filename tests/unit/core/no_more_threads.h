// SPDX-License-Identifier: Apache-2.0
// A process that can make no more threads, as at a limit of processes, which root does not have.
#pragma once

#include <cstddef>

#include <pthread.h>

namespace smp {

/// While it is there, making a thread without attributes of its own fails with EAGAIN: the
/// stack that it would get by default is larger than all addresses.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes = before_;
    pthread_attr_setstacksize(&attributes, size_t{1} << 47);
    pthread_setattr_default_np(&attributes);
  }
  ~NoMoreThreads() { pthread_setattr_default_np(&before_); }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace smp
