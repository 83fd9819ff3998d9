// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace smp::record {

/// Shares of a pipeline step's time, 0 to 1.
struct StepShares {
  double computed = 0;
  double forward = 0;   ///< of that; 0 where a device computes, as `deferred`
  double deferred = 0;  ///< of that: gradients of parameters that backwards have left for a wait
};

}  // namespace smp::record
