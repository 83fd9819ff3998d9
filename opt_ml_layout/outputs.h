// SPDX-License-Identifier: Apache-2.0
// Outputs of a job: folders, that of TensorBoard's event files among them, and the marker that says
// how it ended.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "opt_ml_layout/paths.h"

namespace opt_ml {

/// The service shows this much of the failure file.
inline constexpr std::size_t kFailureShownBytes = 1024;

/// Makes code, model, output and output/data where they are absent. Throws HostError.
void create_job_folders(const Layout& layout);

/// Makes a file, and removes it, in each folder that the service takes something from: model,
/// output, output/data, and `checkpoints` where it is there. Throws HostError with the first one
/// that cannot be written: before the start of a job and not after its training.
void try_job_folders(const Layout& layout, const std::filesystem::path& checkpoints);

/// Writes the empty success marker; one that is there already is fine. Throws HostError.
void write_success(const Layout& layout);

/// Writes the failure marker whole or not at all, bytes that are not UTF-8 replaced. The first
/// writer wins, the user's script included: false when there was one already. Throws HostError.
bool write_failure(const Layout& layout, std::string_view text);

/// The longest prefix of at most `limit_bytes` that ends between two characters.
std::string_view utf8_prefix(std::string_view text, std::size_t limit_bytes);

/// LocalPath of input/config/tensorboardoutputconfig.json; empty where the job has none. Throws
/// ConfigError for a file that is no such object.
std::filesystem::path read_tensorboard_folder(const Layout& layout);

/// The folder of a job's checkpoints, by input/config/checkpointconfig.json.
struct CheckpointPlace {
  std::filesystem::path folder;  ///< LocalPath; <base>/checkpoints where the file names none
  std::string address;           ///< S3Uri, with which the service synchronises it; or empty
};

/// Throws ConfigError for a file that is no object of texts.
CheckpointPlace read_checkpoint_place(const Layout& layout);

}  // namespace opt_ml
