// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/utf8.h"

#include <algorithm>

namespace opt_ml {
namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;

/// The last entry whose first character is not beyond `code`; null pointer when there is none.
template <typename Entry>
const Entry* find_entry(const Entry* entries, std::size_t count, char32_t Entry::*first,
                        char32_t code) {
  const Entry* const end = entries + count;
  const Entry* const next = std::upper_bound(
      entries, end, code, [first](char32_t wanted, const Entry& e) { return wanted < e.*first; });
  return next == entries ? nullptr : next - 1;
}

}  // namespace

Utf8Character decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const Utf8Character broken{lead, 1, false};
  if (lead < 0x80) return {lead, 1, true};

  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return broken;
  char32_t code = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return broken;
    code = (code << 6U) | (byte(i) & 0x3FU);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > kLastCharacter) return broken;
  return {code, length, true};
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0U | (code >> 6U));
    put(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    put(0xE0U | (code >> 12U));
    put(0x80U | ((code >> 6U) & 0x3FU));
    put(0x80U | (code & 0x3FU));
  } else {
    put(0xF0U | (code >> 18U));
    put(0x80U | ((code >> 12U) & 0x3FU));
    put(0x80U | ((code >> 6U) & 0x3FU));
    put(0x80U | (code & 0x3FU));
  }
}

bool is_printable(char32_t code) {
  const auto* range = find_entry(kUnprintable, kUnprintableCount, &CharacterRange::first, code);
  return range == nullptr || code > range->last;
}

std::u32string upper(char32_t code) {
  const auto* special = find_entry(kUpperSpecials, kUpperSpecialsCount, &UpperSpecial::code, code);
  if (special != nullptr && special->code == code) return special->upper;
  const auto* run = find_entry(kUpperRuns, kUpperRunsCount, &UpperRun::first, code);
  if (run != nullptr && code <= run->last && (code - run->first) % run->stride == 0) {
    return {static_cast<char32_t>(static_cast<int>(code) + run->delta)};
  }
  return {code};
}

}  // namespace opt_ml
