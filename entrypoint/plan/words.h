// SPDX-License-Identifier: Apache-2.0
// A command line, or a part of one.
#pragma once

#include <string>
#include <vector>

namespace entrypoint {

using Words = std::vector<std::string>;

inline void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

}  // namespace entrypoint
