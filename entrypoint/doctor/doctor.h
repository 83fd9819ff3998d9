// SPDX-License-Identifier: Apache-2.0
// `train --doctor`: looks at this machine as a job would and says what is in its way.
#pragma once

#include <string>
#include <vector>

#include "entrypoint/doctor/findings.h"
#include "opt_ml_layout/paths.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint {

/// Looks; changes nothing and starts nothing of the job. Blocks for some seconds where names do not
/// resolve or hosts do not answer, and as long as importing torch takes, at most a minute.
std::vector<Finding> examine(const opt_ml::Layout& layout, const smp::Variables& environment);

}  // namespace entrypoint
