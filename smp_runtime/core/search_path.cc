// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/search_path.h"

namespace smp {

std::vector<std::string> folders_of(std::string_view search_path) {
  std::vector<std::string> folders;
  while (true) {
    const std::size_t colon = search_path.find(':');
    folders.emplace_back(search_path.substr(0, colon));
    if (colon == std::string_view::npos) return folders;
    search_path.remove_prefix(colon + 1);
  }
}

}  // namespace smp
