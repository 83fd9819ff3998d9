// SPDX-License-Identifier: Apache-2.0
// One rank's files of a checkpoint in parts, as objects: see docs/reference/file_formats.md.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

#include "smp_runtime/api/model_core.h"
#include "smp_runtime/api/optimizer_core.h"

namespace smp::api {

struct CheckpointPart {
  std::string file;
  c10::IValue object;
};

/// The files of this rank: none where other ranks hold the same. `optimizer` may be null.
/// Collective over the job.
std::vector<CheckpointPart> parts_of(DistributedModel::Core& model,
                                     DistributedOptimizer::Core* optimizer);

}  // namespace smp::api
