// SPDX-License-Identifier: Apache-2.0
// `train --doctor`: looks at this machine as a job would and says what is in its way.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "entrypoint/config/process_environment.h"
#include "opt_ml_layout/paths.h"

namespace entrypoint::launch {

enum class Health { kGood, kWarning, kBad };

struct Finding {
  std::string subject;
  Health health = Health::kGood;
  std::string finding;
  std::string remedy;  ///< empty when all is well
};

/// Looks; changes nothing. Blocks for some seconds where names do not resolve.
std::vector<Finding> examine(const opt_ml::Layout& layout, const EnvironmentMap& environment);

/// One line for each finding, its remedy below it. Ends in a newline. Pure.
std::string findings_text(const std::vector<Finding>& findings);

/// 1 when something is bad, else 0. Pure.
int findings_exit_code(const std::vector<Finding>& findings);

}  // namespace entrypoint::launch
