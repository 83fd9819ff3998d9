// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/gpu_driver.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace entrypoint {
namespace {

int leading_number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// "13.0" of "2.11.0+cu130"; empty for a torch without CUDA.
std::string cuda_of(std::string_view torch) {
  constexpr std::string_view kMark = "+cu";
  const std::size_t mark = torch.find(kMark);
  if (mark == std::string_view::npos) return {};
  const int digits = leading_number(torch.substr(mark + kMark.size()));
  return fmt::format("{}.{}", digits / 10, digits % 10);
}

}  // namespace

int oldest_driver(std::string_view cuda) {
  constexpr std::pair<int, int> kFamilies[] = {{11, 450}, {12, 525}, {13, 580}};
  const int major = leading_number(cuda);
  const auto* const row = std::ranges::find(kFamilies, major, &std::pair<int, int>::first);
  return row == std::end(kFamilies) ? 0 : row->second;
}

int driver_family(std::string_view version) { return leading_number(version); }

std::optional<std::string> driver_warning(std::string_view driver, std::string_view torch) {
  const std::string cuda = cuda_of(torch);
  const int family = driver_family(driver);
  const int needed = oldest_driver(cuda);
  if (family == 0 || family >= needed) return std::nullopt;
  return fmt::format(
      "NVIDIA driver {} is older than CUDA {} of torch {} needs ({}): the script will not be able "
      "to use the GPUs; install driver {} or newer on the machine",
      driver, cuda, torch, needed, needed);
}

}  // namespace entrypoint
