// SPDX-License-Identifier: Apache-2.0
// Lists of folders such as PATH and LD_LIBRARY_PATH.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smp {

/// The folders of `search_path`, in its order. An empty one stands for the working folder.
std::vector<std::string> folders_of(std::string_view search_path);

}  // namespace smp
