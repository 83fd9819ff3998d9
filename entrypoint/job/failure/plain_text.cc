// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/plain_text.h"

#include <algorithm>

#include "opt_ml_layout/utf8.h"

namespace entrypoint {
namespace {

constexpr char kEscape = '\x1b';
constexpr char kBell = '\x07';

bool is_shown(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return c == '\t' || c == '\n' || (byte >= 0x20 && byte != 0x7F);
}

bool is_plain_ascii(char c) { return is_shown(c) && static_cast<unsigned char>(c) < 0x80; }

// The length of the sequence that starts with the escape at the front (ECMA-48): CSI up to its
// final byte, OSC up to its terminator, else two bytes. One that is cut off counts as whole.
std::size_t sequence_length(std::string_view text) {
  if (text.size() < 2) return text.size();
  if (text[1] == '[') {
    const auto* const end = std::find_if(text.begin() + 2, text.end(),
                                         [](char c) { return c >= '\x40' && c <= '\x7e'; });
    return end == text.end() ? text.size() : static_cast<std::size_t>(end - text.begin()) + 1;
  }
  if (text[1] == ']') {
    const std::size_t bell = text.find(kBell);
    const std::size_t string_end = text.find("\x1b\\", 2);
    if (bell != std::string_view::npos && bell < string_end) return bell + 1;
    return string_end == std::string_view::npos ? text.size() : string_end + 2;
  }
  return 2;
}

}  // namespace

std::string plain_text(std::string_view text) {
  if (std::ranges::all_of(text, is_plain_ascii)) return std::string(text);
  std::string result;
  while (!text.empty()) {
    if (text.front() == kEscape) {
      text.remove_prefix(sequence_length(text));
      continue;
    }
    const opt_ml::Utf8Character next = opt_ml::decode_utf8(text);
    if (!next.valid) {
      result += "\xEF\xBF\xBD";
    } else if (is_shown(text.front())) {
      result += text.substr(0, next.length);
    }
    text.remove_prefix(next.length);
  }
  return result;
}

}  // namespace entrypoint
