// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/gloo_abort.h"

#include <algorithm>
#include <csignal>
#include <string>

namespace entrypoint::supervise {

bool is_gloo_abort(const launch::ExitStatus& status, const OutputRecord& record) {
  constexpr std::string_view kLastWords =
      "terminate called after throwing an instance of 'gloo::EnforceNotMet'";
  if (status.shell_code() != 128 + SIGABRT) return false;
  return std::ranges::any_of(record.telling_lines(), [&](const std::string& line) {
    return line.find(kLastWords) != std::string::npos;
  });
}

}  // namespace entrypoint::supervise
