// SPDX-License-Identifier: Apache-2.0
// Findings of `train --doctor`, and their texts. All pure.
#pragma once

#include <string>
#include <vector>

namespace entrypoint {

enum class Health { kGood, kWarning, kBad };

struct Finding {
  std::string subject;  ///< one or two words: "driver", "host algo-2"
  Health health = Health::kGood;
  std::string finding;  ///< one line
  std::string remedy;   ///< what to do; empty when all is well

  bool operator==(const Finding&) const = default;
};

/// One line for each finding, its remedy below it. Ends in a newline.
std::string findings_text(const std::vector<Finding>& findings);

/// {"healthy": …, "findings": [{"subject", "health", "finding", "remedy"}]}, health being ok,
/// warning or bad; indented, ends in a newline.
std::string findings_json(const std::vector<Finding>& findings);

/// 1 when something is bad, else 0: what a probe of Kubernetes wants.
int findings_exit_code(const std::vector<Finding>& findings);

}  // namespace entrypoint
