// SPDX-License-Identifier: Apache-2.0
// Times of a step's runs on the device, where the host only starts kernels and goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace smp::pipeline {

/// A device's use of the time of a step.
struct DeviceUse {
  std::chrono::nanoseconds total{0};
  std::chrono::nanoseconds computed{0};  ///< in runs
  int64_t runs = 0;
};

/// Belongs to the holder of the run token, as the scheduler does. Nothing here waits.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  /// Forgets a step that was begun and has not ended.
  virtual void begin_step() = 0;
  virtual void begin_run() = 0;
  /// Ends the run that was begun last.
  virtual void end_run() = 0;
  virtual void end_step() = 0;
  /// Use of the last step that the device has done; none before the first.
  [[nodiscard]] virtual std::optional<DeviceUse> last() = 0;
};

}  // namespace smp::pipeline
