// SPDX-License-Identifier: Apache-2.0
// A program's words, made fit for a file that people read and tools parse.
#pragma once

#include <string>
#include <string_view>

namespace entrypoint {

/// Valid UTF-8 (bytes that are not become U+FFFD) without terminal sequences (colours, cursor
/// moves, titles) and without control characters other than tab and newline. Pure.
std::string plain_text(std::string_view text);

}  // namespace entrypoint
