// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/member_path.h"

#include <algorithm>
#include <cctype>

namespace entrypoint::fetch {
namespace {

template <typename Visit>
void each_segment(std::string_view path, Visit visit) {
  while (true) {
    const std::size_t end = path.find('/');
    visit(path.substr(0, end));
    if (end == std::string_view::npos) return;
    path.remove_prefix(end + 1);
  }
}

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
  each_segment(text, [&result](std::string_view segment) {
    while (is_drive(segment)) {
      segment.remove_prefix(2);
      result.changed = true;
    }
    if (segment == "..") result.changed = true;
    if (segment.empty() || segment == "." || segment == "..") return;
    if (!result.path.empty()) result.path += '/';
    result.path += segment;
  });
  return result;
}

bool stays_inside(std::string_view link, std::string_view target) {
  if (target.empty() || target.front() == '/' || target.find('\0') != std::string_view::npos) {
    return false;
  }
  long depth = std::ranges::count(link, '/');  // of the folder that holds the link
  bool inside = true;
  each_segment(target, [&](std::string_view segment) {
    if (segment.empty() || segment == ".") return;
    depth += segment == ".." ? -1 : 1;
    inside &= depth >= 0;
  });
  return inside;
}

}  // namespace entrypoint::fetch
