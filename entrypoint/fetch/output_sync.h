// SPDX-License-Identifier: Apache-2.0
// Uploads what a job writes to output/intermediate while it runs.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "entrypoint/fetch/transfer_module.h"
#include "entrypoint/fetch/upload_queue.h"
#include "entrypoint/plan/transfers.h"
#include "entrypoint/process/process_runner.h"
#include "entrypoint/process/spawn.h"
#include "opt_ml_layout/paths.h"

namespace entrypoint::fetch {

/// The process that uploads.
class OutputSync {
 public:
  /// Makes the folder and starts watching it, where there is a `target`. What fails here or later
  /// is logged: uploads end no job. References must outlive it.
  OutputSync(const std::optional<OutputTarget>& target, const opt_ml::Layout& layout,
             const TransferSettings& settings, ProcessRunner& runner);

  /// Uploads the rest. Blocks for at most `limit`, then what is left stays here, which is logged.
  void finish(std::chrono::seconds limit = std::chrono::minutes(5));

 private:
  ProcessRunner& runner_;
  std::optional<ChildId> helper_;
  FileDescriptor stop_;  ///< a byte in it asks for the end
};

/// Watches `folder` and uploads each finished file until `stop` becomes readable or closes; then
/// everything that changed since, finished or not, and returns when that is uploaded. Deletions are
/// not mirrored. Blocks for as long as the job runs. Throws HostError when the folder cannot be
/// watched; errors of single files are logged.
std::string sync_output(const std::filesystem::path& folder, const std::filesystem::path& staging,
                        const Upload& upload, int stop);

}  // namespace entrypoint::fetch
