// SPDX-License-Identifier: Apache-2.0
// JSON as text that others read.
#pragma once

#include <string>

namespace smp {

/// `value`, of one of the json types of nlohmann, on one line. What is no UTF-8, as a path may be,
/// is replaced. `in_ascii`: other characters are escaped.
template <typename Json>
std::string json_line(const Json& value, bool in_ascii = false) {
  return value.dump(-1, ' ', in_ascii, Json::error_handler_t::replace);
}

}  // namespace smp
