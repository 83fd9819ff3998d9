// SPDX-License-Identifier: Apache-2.0
// Texts that are lists, such as PATH.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smp {

/// What stands before, between and behind the separators: of an empty text one empty part.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace smp
