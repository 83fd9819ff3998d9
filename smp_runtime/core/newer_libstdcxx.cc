// SPDX-License-Identifier: Apache-2.0
// Functions of GCC 12's libstdc++ (GLIBCXX_3.4.30) that we call and GCC 11's has not in this
// version. With our own, what is built on Debian 12 loads on Amazon Linux 2023 and Ubuntu 22.04.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <pthread.h>

void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) {
  pthread_cond_wait(native_handle(), lock.mutex()->native_handle());
}

namespace std {

/// What _GLIBCXX_ASSERTIONS calls.
[[noreturn]] void __glibcxx_assert_fail(const char* file, int line, const char* function,
                                        const char* condition) noexcept {
  std::fprintf(stderr, "%s:%d: %s: Assertion '%s' failed.\n", file, line, function, condition);
  std::abort();
}

}  // namespace std
