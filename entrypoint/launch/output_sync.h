// SPDX-License-Identifier: Apache-2.0
// The process that uploads output/intermediate.
#pragma once

#include <optional>

#include "entrypoint/launch/job.h"
#include "entrypoint/launch/process/file_descriptor.h"

namespace entrypoint::launch {

class OutputSync {
 public:
  /// Makes the folder and starts watching it, where the plan asks for that. What fails here or
  /// later is logged: uploads end no job. References must outlive it.
  OutputSync(const LaunchPlan& plan, const opt_ml::Layout& layout, const JobSettings& settings,
             ProcessRunner& runner);

  /// Uploads the rest. Blocks for at most `limit`, then what is left stays here, which is logged.
  void finish(std::chrono::seconds limit = std::chrono::minutes(5));

 private:
  ProcessRunner& runner_;
  std::optional<ChildId> helper_;
  FileDescriptor stop_;  ///< a byte in it asks for the end
};

}  // namespace entrypoint::launch
