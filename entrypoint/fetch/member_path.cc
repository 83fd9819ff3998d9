// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/member_path.h"

#include <algorithm>
#include <cctype>

#include "smp_runtime/core/text.h"

namespace entrypoint::fetch {
namespace {

bool is_drive(std::string_view segment) {
  return segment.size() >= 2 && segment[1] == ':' &&
         std::isalpha(static_cast<unsigned char>(segment[0])) != 0;
}

}  // namespace

MemberPath harmless_path(std::string_view name) {
  name = name.substr(0, name.find('\0'));
  std::string text(name);
  std::ranges::replace(text, '\\', '/');
  MemberPath result{.changed = text != name || text.starts_with('/')};
  for (const std::string& part : smp::split(text, '/')) {
    std::string_view segment = part;
    while (is_drive(segment)) {
      segment.remove_prefix(2);
      result.changed = true;
    }
    if (segment == "..") result.changed = true;
    if (segment.empty() || segment == "." || segment == "..") continue;
    if (!result.path.empty()) result.path += '/';
    result.path += segment;
  }
  return result;
}

bool stays_inside(std::string_view link, std::string_view target) {
  if (target.empty() || target.front() == '/' || target.find('\0') != std::string_view::npos) {
    return false;
  }
  long depth = std::ranges::count(link, '/');  // of the folder that holds the link
  for (const std::string& segment : smp::split(target, '/')) {
    if (segment.empty() || segment == ".") continue;
    depth += segment == ".." ? -1 : 1;
    if (depth < 0) return false;
  }
  return true;
}

}  // namespace entrypoint::fetch
