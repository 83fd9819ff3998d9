// SPDX-License-Identifier: Apache-2.0
// Uploads what a job writes to output/intermediate while it runs.
#pragma once

#include <filesystem>
#include <string>

#include "entrypoint/sync/upload_queue.h"

namespace entrypoint::sync {

/// Watches `folder` and uploads each finished file until `stop` becomes readable or closes; then
/// everything that changed since, finished or not, and returns when that is uploaded. Deletions are
/// not mirrored. Blocks for as long as the job runs. Throws HostError when the folder cannot be
/// watched; errors of single files are logged.
std::string sync_output(const std::filesystem::path& folder, const std::filesystem::path& staging,
                        const Upload& upload, int stop);

}  // namespace entrypoint::sync
