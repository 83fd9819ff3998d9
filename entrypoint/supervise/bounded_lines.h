// SPDX-License-Identifier: Apache-2.0
// The last lines of a stream.
#pragma once

#include <deque>
#include <string>
#include <string_view>

namespace entrypoint::supervise {

/// Adds a line behind the others, of which at most `limit` stay.
inline void push_bounded(std::deque<std::string>& lines, std::string_view line, std::size_t limit) {
  if (lines.size() == limit) lines.pop_front();
  lines.emplace_back(line);
}

}  // namespace entrypoint::supervise
