// SPDX-License-Identifier: Apache-2.0
// A device that computes nothing: streams are numbers, current for a thread as CUDA's are, and each
// has a clock that goes on with the work that it is given.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "smp_runtime/cuda/stream_event.h"

namespace smp::pipeline::testing {

class FakeDevice : public c10::impl::DeviceGuardImplInterface {
 public:
  /// No other part of Torch uses it.
  static constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
  static c10::Device device() { return {kType, 0}; }
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device(), id);
  }
  static c10::StreamId current() { return current_; }

  /// Gives the current stream work that takes so long.
  static void compute(int64_t milliseconds) {
    given_[static_cast<size_t>(current_)] += milliseconds;
  }
  /// What was given is done, and what will be; or the device stops at what it was given so far.
  static void go_on(bool goes) { goes_ = goes; }

  [[nodiscard]] c10::DeviceType type() const override { return kType; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device) const override { return device(); }
  [[nodiscard]] c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  [[nodiscard]] c10::Stream getStream(c10::Device) const override { return stream(current_); }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream to) const override {
    const c10::Stream from = stream(current_);
    current_ = to.id();
    return from;
  }

  [[nodiscard]] bool queryStream(const c10::Stream&) const override { return goes_; }

  // An event is the time of its stream.
  void record(void** event, const c10::Stream& at, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new int64_t;
    *static_cast<int64_t*>(*event) = given_[static_cast<size_t>(at.id())];
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<int64_t*>(event);
  }
  void block(void*, const c10::Stream&) const override {}
  [[nodiscard]] bool queryEvent(void*) const override { return goes_; }
  [[nodiscard]] double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    return static_cast<double>(*static_cast<int64_t*>(end) - *static_cast<int64_t*>(begin));
  }

 private:
  static inline thread_local c10::StreamId current_ = 0;
  static inline std::array<std::atomic<int64_t>, 16> given_{};
  static inline std::atomic<bool> goes_{true};
};

}  // namespace smp::pipeline::testing
