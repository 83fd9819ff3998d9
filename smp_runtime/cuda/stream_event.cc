// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/stream_event.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "smp_runtime/torch_compat/torch_compat.h"

namespace smp::cuda {
namespace {

c10::impl::VirtualGuardImpl device_of(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

// Torch's events go back to the device that was current by cudaSetDevice, which makes a context on
// it: on the first GPU for a thread that has set none. A guard goes back without.

/// Throws nothing.
void destroy(c10::Event* event) {
  const c10::impl::VirtualGuardImpl device(event->device_type());
  c10::Device before = event->device();
  try {
    before = device.getDevice();
  } catch (...) {  // the device has failed: what follows would end the process
    return;
  }
  if (event->was_marked_for_recording()) device.uncheckedSetDevice(event->device());
  delete event;
  device.uncheckedSetDevice(before);
}

}  // namespace

StreamEvent::StreamEvent(const c10::Stream& stream) {
  if (stream.device().is_cpu()) return;
  const c10::DeviceGuard guard(stream.device());
  const std::shared_ptr<c10::Event> event(new c10::Event(stream.device_type()), destroy);
  event->record(stream);
  event_ = event;
}

StreamEvent StreamEvent::record(const c10::Device& device) {
  return StreamEvent(current_stream(device));
}

bool StreamEvent::query() const { return !event_ || event_->query(); }

void StreamEvent::synchronize() const {
  if (event_) event_->synchronize();
}

void StreamEvent::block(const c10::Stream& stream) const {
  if (!event_) return;
  const c10::DeviceGuard guard(stream.device());
  event_->block(stream);
}

c10::Stream current_stream(const c10::Device& device) {
  return device_of(device).getStream(device);
}

void use_stream(const c10::Stream& stream) {
  const auto device = device_of(stream.device());
  device.exchangeStream(stream);
  device.setDevice(stream.device());
}

c10::Stream side_stream(const c10::Device& device, Priority priority) {
  if (device.is_cpu()) return current_stream(device);
  return device_of(device).getStreamFromGlobalPool(device, priority == Priority::kHigh);
}

void note_use(const at::Tensor& tensor, const c10::Stream& stream) {
  if (tensor.is_cpu() || !tensor.has_storage()) return;
  device_of(tensor.device()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

void* native(const c10::Stream& stream) {
  return stream.device().is_cpu() ? nullptr : torch_compat::native_handle(stream);
}

}  // namespace smp::cuda
