// SPDX-License-Identifier: Apache-2.0
// inputdataconfig.json: the job's input channels.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/paths.h"
#include "opt_ml_layout/value.h"
#include "smp_runtime/core/error.h"

namespace opt_ml {

struct Channel {
  std::string name;
  std::filesystem::path folder;
};

struct DataChannels {
  std::vector<Channel> channels;     ///< file order
  Value document = Value::Object{};  ///< the whole file

  [[nodiscard]] std::vector<std::string> sorted_names() const {
    std::vector<std::string> names;
    for (const Channel& channel : channels) names.push_back(channel.name);
    std::ranges::sort(names);
    return names;
  }
};

/// Reads the tree's file; a missing file means no channels. Throws ConfigError for broken JSON, a
/// document that is no object, and a name that would leave input/data.
inline DataChannels read_data_channels(const Layout& layout) {
  const std::filesystem::path file = layout.input_data_config();
  DataChannels result;
  result.document = read_json_file(file).value_or(Value::Object{});
  if (result.document.object() == nullptr) {
    throw smp::ConfigError("{}: is {}, expected an object of channels; correct the file",
                           file.string(), result.document.kind_name());
  }
  for (const Value::Member& member : *result.document.object()) {
    const std::string& name = member.key;
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      throw smp::ConfigError("{}: channel \"{}\" is not a folder name; rename the channel",
                             file.string(), name);
    }
    result.channels.push_back({.name = name, .folder = layout.channel(name)});
  }
  return result;
}

}  // namespace opt_ml
