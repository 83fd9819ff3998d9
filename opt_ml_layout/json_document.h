// SPDX-License-Identifier: Apache-2.0
// Reads JSON by the rules of Python's json module, which every reference tool uses: NaN, Infinity
// and -Infinity are numbers, integers have any size, 1E400 is infinity, -0 is 0, the last of equal
// keys wins. Errors say line and column (in characters, from 1).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "opt_ml_layout/value.h"
#include "smp_runtime/core/error.h"

namespace opt_ml {

/// Text that is not JSON. `what()` reads "line 3, column 17: found 'x', expected …".
class JsonSyntaxError : public smp::ConfigError {
  using ConfigError::ConfigError;
};

/// Parses one JSON text, blanks around it allowed. Throws JsonSyntaxError, also for bytes that are
/// not UTF-8, nesting deeper than 1000 and integers of more than 4300 digits (Python's limits).
Value parse_json(std::string_view text);

/// The same, nothing for text that is not JSON.
std::optional<Value> try_parse_json(std::string_view text);

/// Reads a file; nothing when it does not exist. Throws ConfigError that names the file and, for
/// broken JSON, line and column; HostError when it cannot be read.
std::optional<Value> read_json_file(const std::filesystem::path& file);

}  // namespace opt_ml
