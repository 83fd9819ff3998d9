// SPDX-License-Identifier: Apache-2.0
// Parts of texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smp {

/// Parts before, between and behind the separators; one empty part for an empty text.
std::vector<std::string> split(std::string_view text, char separator);

/// Parts that end in `terminator`, without it, and a rest that has none; nothing for an empty text.
std::vector<std::string> split_terminated(std::string_view text, char terminator);

/// Without the white space at both ends. A view into `text`.
std::string_view trimmed(std::string_view text);

}  // namespace smp
