// SPDX-License-Identifier: Apache-2.0
// Around a wait for other ranks that counts as an activity.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "smp_runtime/record/recorder.h"

namespace smp::record {

class Waited {
 public:
  /// `recorder` may be null. `name` makes the span's name, where one is worth making.
  template <typename Name>
  Waited(Recorder* recorder, Activity activity, Name&& name)
      : recorder_(recorder), activity_(activity) {
    if (recorder_ == nullptr) return;
    if (recorder_->draws()) name_ = name();
    begin_ = Clock::now();
  }
  ~Waited() {
    if (recorder_ != nullptr) recorder_->add(activity_, name_, begin_, Clock::now());
  }
  Waited(const Waited&) = delete;
  Waited& operator=(const Waited&) = delete;

 private:
  Recorder* recorder_;
  Activity activity_;
  std::string name_;
  Clock::time_point begin_;
};

}  // namespace smp::record
