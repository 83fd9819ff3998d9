// SPDX-License-Identifier: Apache-2.0
// Variables of the environment: what a binary reads, as one table that its reader and its
// reference share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/core/log.h"

namespace smp {

using Variables = std::map<std::string, std::string, std::less<>>;

/// The environment of this process; of equal names the first, as getenv() has it.
Variables read_variables();
/// The same of a list of NAME=value.
Variables variables_of(std::span<const std::string> entries);

/// The variable's value, or `otherwise` when it is unset or empty.
std::string value_or(const Variables& variables, std::string_view name,
                     std::string_view otherwise = "");

/// 1, on, true or yes: true; 0, off, false or no: false; in any case. Nothing for other texts.
std::optional<bool> parse_switch(std::string_view text);

/// A row of a table.
struct VariableRow {
  std::string_view name;
  std::string_view standard;  ///< the default; empty: none
  std::string_view meaning;
};

/// The variables of `table` as `given`: one that is unset or empty has its default. Views into
/// both. A value that is none throws ConfigError, which says what may stand there.
class VariableSet {
 public:
  VariableSet(std::span<const VariableRow> table, const Variables& given)
      : table_(table), given_(given) {}

  [[nodiscard]] std::string text(std::string_view name) const;
  /// parse_switch().
  [[nodiscard]] bool flag(std::string_view name) const;
  [[nodiscard]] double seconds(std::string_view name) const;
  [[nodiscard]] log::Level level(std::string_view name) const;
  [[nodiscard]] std::string choice(std::string_view name,
                                   std::initializer_list<std::string_view> words) const;
  /// A whole number from `least` to `most`; `expected` is said of anything else.
  [[nodiscard]] std::int64_t whole(std::string_view name, std::int64_t least, std::int64_t most,
                                   std::string_view expected) const;

  [[noreturn]] void refuse(std::string_view name, std::string_view expected) const;

  /// One sentence for each given variable with `prefix` that is neither in the table nor in
  /// `elsewhere` nor in `unnamed`, with the nearest of the former two:
  /// "SMP_PROGRES is not known; did you mean SMP_PROGRESS?". Names of the former two begin with it.
  [[nodiscard]] std::vector<std::string> unknown(
      std::string_view prefix, std::span<const std::string_view> elsewhere = {},
      std::span<const std::string_view> unnamed = {}) const;

 private:
  std::span<const VariableRow> table_;
  const Variables& given_;
};

}  // namespace smp
