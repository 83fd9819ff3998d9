// SPDX-License-Identifier: Apache-2.0
// UTF-8, and the three facts about Unicode characters that Python's text functions rest on.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace opt_ml {

/// One decoded character. Lone surrogates, which JSON escapes can make, pass as they do in Python;
/// `valid` is false for bytes that are no UTF-8, and `code` is then the first byte.
struct Utf8Character {
  char32_t code = 0;
  std::size_t length = 1;
  bool valid = true;
};

/// Decodes the character that starts at `text[0]`; `text` is not empty.
Utf8Character decode_utf8(std::string_view text);

void append_utf8(std::string& text, char32_t code);

/// True if str.isprintable() holds for the character.
bool is_printable(char32_t code);

/// The one to three characters of str.upper().
std::u32string upper(char32_t code);

}  // namespace opt_ml
