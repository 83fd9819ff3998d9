// SPDX-License-Identifier: Apache-2.0
// The clock of a device: pairs of events around what its current stream is given in a run.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include "smp_runtime/pipeline/timeline.h"

namespace smp::pipeline {

/// All members are called under the step's stream. A run's time begins when the stream gets to it,
/// behind what it was given before.
class StreamClock : public DeviceClock {
 public:
  explicit StreamClock(const c10::Device& device) : device_(device) {}

  void begin_step() override;
  void begin_run() override;
  void end_run() override;
  void end_step() override;
  [[nodiscard]] std::optional<DeviceUse> last() override;

 private:
  using EventPtr = std::unique_ptr<c10::Event>;
  struct Step {
    EventPtr begin;
    EventPtr end;
    std::vector<std::pair<EventPtr, EventPtr>> runs;
  };

  [[nodiscard]] EventPtr recorded() const;

  const c10::Device device_;
  Step step_;     ///< in progress
  EventPtr run_;  ///< begin of the run in progress
  std::deque<Step> given_;
  std::optional<DeviceUse> last_;
};

}  // namespace smp::pipeline
