// SPDX-License-Identifier: Apache-2.0
// UTF-8, the three facts about Unicode characters that Python's text functions rest on, and the
// tables behind them.
#pragma once

#include <cstddef>
#include <iterator>
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

// The tables of unicode_tables.cc, sorted by character.

struct CharacterRange {
  char32_t first;
  char32_t last;
};

/// Every `stride`-th character from first to last maps to itself plus delta.
struct UpperRun {
  char32_t first;
  char32_t last;
  int stride;
  int delta;
};

struct UpperSpecial {
  char32_t code;
  const char32_t* upper;
};

extern const CharacterRange kUnprintable[];
extern const UpperRun kUpperRuns[];
extern const UpperSpecial kUpperSpecials[];
extern const std::size_t kUnprintableCount;
extern const std::size_t kUpperRunsCount;
extern const std::size_t kUpperSpecialsCount;

}  // namespace opt_ml
