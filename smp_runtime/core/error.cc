// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/error.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include <sys/resource.h>

namespace smp {
namespace {

std::atomic<AdviceWords> words_of_face{nullptr};

}  // namespace

std::string system_error_text(int error) {
  if (error == EMFILE) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    return fmt::format(
        "{}: the limit of this process is {} open files; raise it (ulimit -n), or have fewer "
        "groups at a time",
        std::strerror(error), files.rlim_cur);
  }
  return std::strerror(error);
}

void set_advice_words(AdviceWords words) { words_of_face.store(words); }

std::string advised(std::string facts, Advice advice) {
  if (const AdviceWords words = words_of_face.load()) facts += words(advice);
  return facts;
}

void detail::check_failed(const char* condition, const std::string& message,
                          const std::source_location& where) {
  throw InternalError(
      "{} ({}:{}: `{}` does not hold); this is a bug of the runtime, please report it", message,
      where.file_name(), where.line(), condition);
}

}  // namespace smp
