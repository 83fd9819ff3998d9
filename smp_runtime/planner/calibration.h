// SPDX-License-Identifier: Apache-2.0
// Speeds that a run of the script tells: what is predicted for its settings against what it took.
#pragma once

#include "smp_runtime/planner/machines.h"
#include "smp_runtime/planner/model_profile.h"
#include "smp_runtime/planner/prediction.h"
#include "smp_runtime/topology/setting.h"

namespace smp::planner {

/// A step of a job of the script, the mean of its ranks and later steps, as its report has it.
struct MeasuredRun {
  int hosts = 1;
  int ranks_a_host = 1;
  topology::Settings settings;
  std::int64_t batch = 0;   ///< samples in one call of the step; 0: not known
  double step_seconds = 0;  ///< without what passes between a step and the next, such as for data
  /// Parts of it; `computing` has what recomputes, too. What is in no part is in the step alone.
  StepTimes times;
  double activation_bytes = 0;  ///< of the fullest rank; 0: not known
};

/// Factors between table and run.
struct Calibration {
  Prediction predicted;     ///< of the run's step, before
  double device_speed = 1;  ///< of the run's devices to those of the table
  double link_speed = 1;    ///< likewise of the slowest links that the run used
  double activations = 1;   ///< of bytes that activations took to those of the trace
};

/// Changes speeds, and bytes of activations, so that the run's step is predicted as it was. On
/// processors the parts count: computing tells the speed of devices, exchanges that of links. On
/// GPUs, which compute beside the interpreter, the step alone does, and all speeds change alike.
/// Throws ConfigError for a run of another batch, for one that rules refuse, and for one that took
/// so much longer or shorter than predicted that it is another script's or of other machines.
Calibration calibrate(ModelProfile& model, Machines& machines, const MeasuredRun& run);

}  // namespace smp::planner
