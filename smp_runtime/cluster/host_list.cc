// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cluster/host_list.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::cluster {
namespace {

constexpr std::size_t kMostHosts = 65536;
constexpr std::size_t kMostDigits = 9;

class ListReader {
 public:
  ListReader(std::string_view text, std::string_view variable) : all_(text), variable_(variable) {}

  [[noreturn]] void fail(std::string_view expected) const {
    throw ConfigError("{} is \"{}\"; expected {}", variable_, all_, expected);
  }

  std::vector<std::string> hosts() const {
    std::vector<std::string> result;
    for (const std::string_view entry : entries()) {
      const std::vector<std::string> names = expand(entry);
      if (result.size() + names.size() > kMostHosts) fail("a list of at most 65536 nodes");
      result.insert(result.end(), names.begin(), names.end());
    }
    return result;
  }

  std::vector<int> counts() const {
    constexpr std::string_view kExpected = "a list of counts such as 2(x3),1";
    std::vector<int> result;
    for (const std::string_view entry : entries()) {
      const std::size_t bracket = entry.find("(x");
      std::uint64_t times = 1;
      if (bracket != std::string_view::npos) {
        if (!entry.ends_with(')')) fail(kExpected);
        times = number(entry.substr(bracket + 2, entry.size() - bracket - 3), kExpected);
      }
      const auto count = static_cast<int>(number(entry.substr(0, bracket), kExpected));
      if (result.size() + times > kMostHosts) fail("a list of at most 65536 nodes");
      result.insert(result.end(), times, count);
    }
    return result;
  }

 private:
  static constexpr std::string_view kList = "a list of nodes such as gpu[1-3,07],login";

  std::uint64_t number(std::string_view text, std::string_view expected) const {
    const auto value = parse_number<std::uint64_t>(text);
    if (!value || text.size() > kMostDigits) fail(expected);
    return *value;
  }

  /// Divides at the commas outside of brackets.
  std::vector<std::string_view> entries() const {
    std::vector<std::string_view> result;
    int depth = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= all_.size(); ++i) {
      if (i < all_.size() && all_[i] == '[') ++depth;
      if (i < all_.size() && all_[i] == ']') --depth;
      if (depth < 0 || depth > 1) fail(kList);
      if (i < all_.size() && (all_[i] != ',' || depth > 0)) continue;
      if (i == begin) fail(kList);
      result.push_back(all_.substr(begin, i - begin));
      begin = i + 1;
    }
    if (depth != 0) fail(kList);
    return result;
  }

  /// One entry, of which each pair of brackets multiplies the names.
  std::vector<std::string> expand(std::string_view entry) const {
    const std::size_t open = entry.find('[');
    if (open == std::string_view::npos) return {std::string(entry)};
    const std::size_t close = entry.find(']');
    const std::vector<std::string> tails = expand(entry.substr(close + 1));
    std::vector<std::string> result;
    for (const std::string& middle : ranges(entry.substr(open + 1, close - open - 1))) {
      for (const std::string& tail : tails) {
        if (result.size() == kMostHosts) fail("a list of at most 65536 nodes");
        result.push_back(std::string(entry.substr(0, open)) + middle + tail);
      }
    }
    return result;
  }

  /// "1-3,07" is 1, 2, 3, 07: the first number of a range says how wide all are.
  std::vector<std::string> ranges(std::string_view text) const {
    std::vector<std::string> result;
    while (true) {
      const std::string_view range = text.substr(0, text.find(','));
      const std::size_t dash = range.find('-');
      const std::string_view first = range.substr(0, dash);
      const std::uint64_t begin = number(first, kList);
      const std::uint64_t end =
          dash == std::string_view::npos ? begin : number(range.substr(dash + 1), kList);
      if (end < begin || end - begin >= kMostHosts) fail(kList);
      for (std::uint64_t i = begin; i <= end; ++i) {
        std::string digits = std::to_string(i);
        digits.insert(0, first.size() > digits.size() ? first.size() - digits.size() : 0, '0');
        result.push_back(std::move(digits));
      }
      if (range.size() == text.size()) return result;
      text.remove_prefix(range.size() + 1);
    }
  }

  std::string_view all_;
  std::string_view variable_;
};

}  // namespace

std::vector<std::string> expand_host_list(std::string_view text, std::string_view variable) {
  return ListReader(text, variable).hosts();
}

std::vector<int> expand_counts(std::string_view text, std::string_view variable) {
  return ListReader(text, variable).counts();
}

}  // namespace smp::cluster
