// SPDX-License-Identifier: Apache-2.0
// The one function of GCC 12's libstdc++ (GLIBCXX_3.4.30) that we call and GCC 11's has not in this
// version. With our own, what is built on Debian 12 loads on Amazon Linux 2023 and Ubuntu 22.04.
#include <condition_variable>
#include <mutex>

#include <pthread.h>

void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) noexcept {
  pthread_cond_wait(native_handle(), lock.mutex()->native_handle());
}
