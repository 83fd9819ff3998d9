// SPDX-License-Identifier: Apache-2.0
// A device that computes nothing, the second of two: streams are numbers, current for a thread as
// CUDA's are, and each has a clock that goes on with the work that it is given. As for CUDA, the
// first is every thread's until it sets another, and to set one makes a context there.
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
  static c10::Device device() { return {kType, 1}; }
  /// True if the first device, which nobody is to use, has a context.
  static bool has_context_elsewhere() { return used_[0]; }
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device(), id);
  }
  static c10::StreamId current() { return current_; }

  /// Gives the current stream work that takes so long.
  static void compute(int64_t milliseconds) {
    given_[static_cast<size_t>(current_)] += milliseconds;
  }
  /// Finishes the work given so far, and all later work; or stops at what was given so far.
  static void go_on(bool goes) { goes_ = goes; }

  [[nodiscard]] c10::DeviceType type() const override { return kType; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device to) const override {
    const c10::Device from = getDevice();
    setDevice(to);
    return from;
  }
  [[nodiscard]] c10::Device getDevice() const override { return {kType, device_}; }
  void setDevice(c10::Device to) const override {
    if (to.index() != device_) used_[static_cast<size_t>(to.index())] = true;
    device_ = to.index();
  }
  void uncheckedSetDevice(c10::Device to) const noexcept override { device_ = to.index(); }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return 2; }
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
    const Visit visit(*this);
    if (*event == nullptr) *event = new int64_t;
    *static_cast<int64_t*>(*event) = given_[static_cast<size_t>(at.id())];
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    const Visit visit(*this);
    delete static_cast<int64_t*>(event);
  }
  void block(void*, const c10::Stream&) const override { const Visit visit(*this); }
  [[nodiscard]] bool queryEvent(void*) const override { return goes_; }
  [[nodiscard]] double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    const Visit visit(*this);
    return static_cast<double>(*static_cast<int64_t*>(end) - *static_cast<int64_t*>(begin));
  }

 private:
  /// Visits the device as Torch's calls of CUDA's events do: they set the device and go back.
  class Visit {
   public:
    explicit Visit(const FakeDevice& fake) : fake_(fake), from_(fake.exchangeDevice(device())) {}
    ~Visit() { fake_.setDevice(from_); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    const FakeDevice& fake_;
    const c10::Device from_;
  };

  static inline thread_local c10::DeviceIndex device_ = 0;
  static inline std::array<std::atomic<bool>, 2> used_{};
  static inline thread_local c10::StreamId current_ = 0;
  static inline std::array<std::atomic<int64_t>, 16> given_{};
  static inline std::atomic<bool> goes_{true};
};

}  // namespace smp::pipeline::testing
