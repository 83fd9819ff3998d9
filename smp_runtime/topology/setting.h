// SPDX-License-Identifier: Apache-2.0
// Parallel settings as they were written, before anything is known about their keys: a list of
// names and scalar values with the place they came from. Reads JSON and `k=v,k2=v2` text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace smp::topology {

/// A scalar of JSON. `monostate` is JSON's null and means "as if the key were absent".
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

/// The value as JSON text: `true`, `3`, `0.8`, `"cluster"`, `null`.
std::string to_text(const Value& value);

struct Setting {
  std::string name;
  Value value;

  bool operator==(const Setting&) const = default;
};

/// Settings of one origin, in the order in which they were written, each name once.
struct Settings {
  std::string where;  ///< for messages: "SM_HP_MP_PARAMETERS", "smp.init(config)"
  std::vector<Setting> entries;
};

/// Reads `{"partitions": 2, "ddp": true}` or `partitions=2,ddp=True,pipeline="simple"`. Text whose
/// first character is `{` is JSON; empty text means no settings. A JSON string that holds either
/// form is unwrapped once, because hyperparameters may arrive encoded twice.
/// Throws ConfigError for broken text (JSON: with line and column), for a value that is a list or
/// an object, and for a name given twice.
Settings parse_settings(std::string_view text, std::string where);

}  // namespace smp::topology
