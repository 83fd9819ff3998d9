// SPDX-License-Identifier: Apache-2.0
// inputdataconfig.json: the job's input channels.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "opt_ml_layout/paths.h"
#include "opt_ml_layout/value.h"

namespace opt_ml {

struct Channel {
  std::string name;
  std::filesystem::path folder;
};

struct DataChannels {
  std::vector<Channel> channels;     ///< file order
  Value document = Value::Object{};  ///< the whole file

  [[nodiscard]] std::vector<std::string> sorted_names() const;
};

/// Reads the tree's file; a missing file means no channels. Throws ConfigError for broken JSON, a
/// document that is no object, and a name that would leave input/data.
DataChannels read_data_channels(const Layout& layout);

}  // namespace opt_ml
