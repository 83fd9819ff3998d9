// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/process_environment.h"

namespace entrypoint {

std::string value_or(const EnvironmentMap& environment, std::string_view name,
                     std::string_view fallback) {
  const auto entry = environment.find(name);
  const bool there = entry != environment.end() && !entry->second.empty();
  return there ? entry->second : std::string(fallback);
}

}  // namespace entrypoint
