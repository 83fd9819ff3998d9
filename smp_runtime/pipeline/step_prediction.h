// SPDX-License-Identifier: Apache-2.0
// Predicts how long a step takes under an assignment of modules, for the partitioner.
#pragma once

#include "smp_runtime/partition/predicted_step.h"

namespace smp::pipeline {

/// Simulates the schedule that will run the step. At most some 200,000 runs are simulated, of at
/// least two microbatches.
[[nodiscard]] partition::PredictedStep predict_step(const partition::CallProgram& program,
                                                    int devices, const partition::StepModel& model);

}  // namespace smp::pipeline
