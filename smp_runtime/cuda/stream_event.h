// SPDX-License-Identifier: Apache-2.0
// Order between the streams of a device, without its headers: works in builds without GPU code too,
// and on the CPU, where all work is done when the call returns.
#pragma once

#include <memory>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace at {
class Tensor;
}  // namespace at

namespace smp::cuda {

/// An event behind all work that a stream was given so far. Cheap to copy.
class StreamEvent {
 public:
  /// One that has occurred.
  StreamEvent() = default;
  /// Records it in `stream`.
  explicit StreamEvent(const c10::Stream& stream);
  /// In the current stream of the calling thread.
  [[nodiscard]] static StreamEvent record(const c10::Device& device);

  /// Has it occurred? Does not wait. Throws c10::Error with CUDA's reason once the device has
  /// failed.
  [[nodiscard]] bool query() const;
  /// Until it has occurred. Throws as query() does.
  void synchronize() const;
  /// Makes later work of `stream` wait for the event; the calling thread does not.
  void block(const c10::Stream& stream) const;

 private:
  std::shared_ptr<const c10::Event> event_;  // null: occurred
};

[[nodiscard]] c10::Stream current_stream(const c10::Device& device);
/// From now on it is the calling thread's current stream, of its current device. Throws c10::Error
/// where the device has failed.
void use_stream(const c10::Stream& stream);

/// A stream beside those that compute. Of high priority it shares no hardware queue with them, so
/// that neither stops the other. Streams of a device come from a pool of 32 of each kind.
enum class Priority { kNormal, kHigh };
[[nodiscard]] c10::Stream side_stream(const c10::Device& device, Priority priority);

/// The memory of `tensor` is not used again before what `stream` was given so far is done. For
/// tensors that were made under another stream.
void note_use(const at::Tensor& tensor, const c10::Stream& stream);

/// The stream as CUDA calls it; null on the CPU.
[[nodiscard]] void* native(const c10::Stream& stream);

}  // namespace smp::cuda
