// SPDX-License-Identifier: Apache-2.0
// The folder for event files in the job's TensorBoardOutputConfig: the service uploads it while the
// job runs.
#pragma once

#include <filesystem>

#include "opt_ml_layout/paths.h"

namespace opt_ml {

/// LocalPath of input/config/tensorboardoutputconfig.json; empty where the job has none. Throws
/// ConfigError for a file that is no such object.
std::filesystem::path read_tensorboard_folder(const Layout& layout);

}  // namespace opt_ml
