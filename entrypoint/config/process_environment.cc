// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/process_environment.h"

#include <unistd.h>

namespace entrypoint {

EnvironmentMap read_process_environment() {
  EnvironmentMap result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t mark = text.find('=');
    if (mark == std::string_view::npos) continue;
    // getenv, too, takes the first of equal names.
    result.emplace(text.substr(0, mark), text.substr(mark + 1));
  }
  return result;
}

std::string value_or(const EnvironmentMap& environment, std::string_view name,
                     std::string_view fallback) {
  const auto entry = environment.find(name);
  const bool there = entry != environment.end() && !entry->second.empty();
  return there ? entry->second : std::string(fallback);
}

}  // namespace entrypoint
