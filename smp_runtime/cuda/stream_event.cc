// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/stream_event.h"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace smp::cuda {
namespace {

c10::impl::VirtualGuardImpl device_of(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

StreamEvent::StreamEvent(const c10::Stream& stream) {
  if (stream.device().is_cpu()) return;
  const auto event = std::make_shared<c10::Event>(stream.device_type());
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
  if (event_) event_->block(stream);
}

c10::Stream current_stream(const c10::Device& device) {
  return device_of(device).getStream(device);
}

void use_stream(const c10::Stream& stream) { device_of(stream.device()).exchangeStream(stream); }

c10::Stream side_stream(const c10::Device& device, Priority priority) {
  if (device.is_cpu()) return current_stream(device);
  return device_of(device).getStreamFromGlobalPool(device, priority == Priority::kHigh);
}

void note_use(const at::Tensor& tensor, const c10::Stream& stream) {
  if (tensor.is_cpu() || !tensor.has_storage()) return;
  device_of(tensor.device()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

void* native(const c10::Stream& stream) {
  return stream.device().is_cpu() ? nullptr : stream.native_handle();
}

}  // namespace smp::cuda
