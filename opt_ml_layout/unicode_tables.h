// SPDX-License-Identifier: Apache-2.0
// Unicode data, sorted by character; read through utf8.h.
#pragma once

#include <cstddef>
#include <iterator>

namespace opt_ml {

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
