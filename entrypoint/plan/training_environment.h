// SPDX-License-Identifier: Apache-2.0
// SM_TRAINING_ENV: everything about the job and this host as one object.
#pragma once

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/host_facts.h"
#include "opt_ml_layout/value.h"

namespace entrypoint {

/// Pure. The keys are exactly those of the reference launcher, in alphabetical order.
opt_ml::Value make_training_environment(const JobConfig& job, const HostFacts& facts);

}  // namespace entrypoint
