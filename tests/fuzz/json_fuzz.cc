// SPDX-License-Identifier: Apache-2.0
// What the JSON reader accepts, the writer writes so that it reads back the same; what it refuses,
// it refuses with a JsonSyntaxError and nothing else.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "opt_ml_layout/hyperparameters.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "tests/fuzz/target.h"

using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const std::string text(bytes, bytes + count);

  const std::optional<opt_ml::Value> value = opt_ml::try_parse_json(text);
  if (value) {
    // Texts are compared, not values: NaN differs from itself.
    const std::string written = opt_ml::to_json(*value);
    const std::optional<opt_ml::Value> again = opt_ml::try_parse_json(written);
    require(again.has_value());
    require(opt_ml::to_json(*again) == written);
    require(opt_ml::to_json(opt_ml::parse_json(opt_ml::to_json_indented(*value, 2))) == written);
    static_cast<void>(opt_ml::python_str(*value));
  }

  static_cast<void>(opt_ml::environment_text(opt_ml::decode_hyperparameter(opt_ml::Value(text))));
  try {
    static_cast<void>(opt_ml::parse_json(text));
    require(value.has_value());
  } catch (const opt_ml::JsonSyntaxError&) {
    require(!value.has_value());
  }
  return 0;
}
