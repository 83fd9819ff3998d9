// SPDX-License-Identifier: Apache-2.0
// Values of a job as Python prints them: environment variables and arguments of user scripts carry
// these texts, byte for byte.
#pragma once

#include <string>
#include <string_view>

#include "opt_ml_layout/value.h"

namespace opt_ml {

/// json.dumps with sorted keys, "," and ":" as separators, ASCII only.
std::string to_json(const Value& value);

/// json.dumps with an indent: one member a line, keys in their own order, ASCII only.
std::string to_json_indented(const Value& value, int indent);

/// repr(): 'text', True, None, [1, 'x'], {'k': 1} in file order.
std::string python_repr(const Value& value);

/// str(): bare text, else repr().
std::string python_str(const Value& value);

/// repr(float): shortest digits that read back the same, exponent below 1e-04 and from 1e+16 on.
std::string python_float(double value);

/// The text of an SM_* variable: text as it is, null empty, anything else to_json.
std::string environment_text(const Value& value);

/// str.upper(), full Unicode: ß becomes SS.
std::string python_upper(std::string_view text);

}  // namespace opt_ml
