// SPDX-License-Identifier: Apache-2.0
// Names in archives of unknown origin, made harmless. Pure.
#pragma once

#include <string>
#include <string_view>

namespace entrypoint::fetch {

struct MemberPath {
  std::string path;      ///< segments joined by single slashes; empty: nothing is left
  bool changed = false;  ///< more was dropped than a leading "./" or a trailing slash
};

/// Backslashes become slashes; drive letters, leading slashes, "." and ".." segments go:
/// "../../etc/passwd" is "etc/passwd". The name ends at its first NUL byte.
MemberPath harmless_path(std::string_view name);

/// True if a symbolic link at `link` (a harmless path) with this target stays within the folder,
/// counted by segments. Absolute targets do not.
bool stays_inside(std::string_view link, std::string_view target);

}  // namespace entrypoint::fetch
