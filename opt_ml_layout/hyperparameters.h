// SPDX-License-Identifier: Apache-2.0
// hyperparameters.json: values that are JSON inside text, and the names that belong to the
// framework and not to the user.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "opt_ml_layout/data_channels.h"
#include "opt_ml_layout/paths.h"
#include "opt_ml_layout/value.h"

namespace opt_ml {

/// Decoded and split; three objects in file order.
struct Hyperparameters {
  Value user = Value::Object{};       ///< the script's own: arguments and SM_HP_*
  Value framework = Value::Object{};  ///< other sagemaker_* names, which the script sees as
                                      ///< SM_FRAMEWORK_PARAMS; the launcher reads some
  Value reserved = Value::Object{};   ///< the launcher's alone, e.g. sagemaker_program
  std::vector<std::string> not_json;  ///< names whose value is text that is no JSON, file order
};

/// Text that is JSON by Python's rules becomes that value; other text and values that are no text
/// stay. `007`, `True` and `.5` are not JSON.
Value decode_hyperparameter(const Value& raw);

/// True for a name that the launcher consumes and shows to nobody.
bool is_reserved_hyperparameter(std::string_view name);

/// Decodes each value of the file's object and splits by name.
Hyperparameters split_hyperparameters(const Value& document);

/// Reads the tree's file, and files of `channels` that its values name; a missing file means no
/// hyperparameters. Throws ConfigError for broken JSON, for a document that is no object, and for a
/// named file that is missing or cannot be read.
Hyperparameters read_hyperparameters(const Layout& layout, const DataChannels& channels = {});

/// A switch as people write it: true/false, 1/0, yes/no, on/off, in any case and as text or value;
/// null and empty text are off. Nothing for anything else.
std::optional<bool> parse_switch(const Value& value);

}  // namespace opt_ml
