// SPDX-License-Identifier: Apache-2.0
// One rank's files of a checkpoint in parts, as objects, and the names of parameters in them: see
// docs/reference/file_formats.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "smp/unit.h"
#include <ATen/core/ivalue.h>

#include "smp_runtime/api/model_core.h"
#include "smp_runtime/api/optimizer_core.h"
#include "smp_runtime/sharding/sharded_unit.h"

namespace smp::api {

struct CheckpointPart {
  std::string file;
  c10::IValue object;
};

/// The files of this rank: none where other ranks hold the same. `optimizer` may be null.
/// Collective over the job.
std::vector<CheckpointPart> parts_of(DistributedModel::Core& model,
                                     DistributedOptimizer::Core* optimizer);

/// Each parameter has one name: the first of those under which units have it.
class ParameterNames {
 public:
  explicit ParameterNames(const std::vector<Unit>& units);

  /// All names, in the order of the units.
  [[nodiscard]] const std::vector<std::string>& all() const { return names_; }
  /// Throws InternalError for a tensor that is no parameter.
  [[nodiscard]] const std::string& of(const at::Tensor& parameter) const;
  /// Names of a store's parameters, by their number there.
  [[nodiscard]] std::vector<std::string> of_all(
      const std::vector<sharding::StoredParameter>& parameters) const;
  /// Other names of parameters, and their first ones.
  [[nodiscard]] const std::map<std::string, std::string>& tied() const { return tied_; }

 private:
  std::vector<std::string> names_;
  std::map<const void*, std::size_t> number_of_;
  std::map<std::string, std::string> tied_;
};

}  // namespace smp::api
