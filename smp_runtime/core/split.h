// SPDX-License-Identifier: Apache-2.0
// Parts of texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smp {

/// What stands before, between and behind the separators: of an empty text one empty part.
std::vector<std::string> split(std::string_view text, char separator);

/// What stands before each `terminator`, and a rest that has none: of an empty text nothing.
std::vector<std::string> split_terminated(std::string_view text, char terminator);

/// Without the white space at both ends. A view into `text`.
std::string_view trimmed(std::string_view text);

}  // namespace smp
