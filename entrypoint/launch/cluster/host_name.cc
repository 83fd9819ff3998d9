// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/launch/cluster/host_name.h"

#include <algorithm>
#include <cctype>

#include "smp_runtime/core/error.h"

namespace entrypoint::launch {

void check_host_name(std::string_view host) {
  const auto is_alphanumeric = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 && static_cast<unsigned char>(c) < 128;
  };
  const bool good = !host.empty() && host.size() <= 253 && is_alphanumeric(host.front()) &&
                    std::ranges::all_of(host, [&](char c) {
                      return is_alphanumeric(c) || c == '.' || c == '-' || c == '_';
                    });
  if (!good) {
    throw smp::ConfigError(
        "resourceconfig.json: \"{}\" is no host name; expected letters, digits, dots, dashes and "
        "underscores, and a letter or digit first",
        host);
  }
}

}  // namespace entrypoint::launch
