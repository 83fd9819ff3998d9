// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/call_body.h"

#include <memory>
#include <string_view>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/plain_bytes.h"
#include "smp_runtime/transport/channel/tensor_payload.h"

namespace smp::pipeline {
namespace {

using transport::TensorPayload;

// body = EncodedModes, number of tensors, one Flags per tensor, a meta of each that is
// absent, definition
enum Flags : uint8_t { kPresent = 1, kAbsent = 2, kRequiresGrad = 4 };

struct EncodedModes {
  enum : uint8_t { kGrad = 1, kCpuAutocast = 2, kCudaAutocast = 4, kCache = 8 };
  uint8_t flags;
  int8_t cpu_type;
  int8_t cuda_type;
};

at::ScalarType checked_type(int8_t type) {
  SMP_CHECK(type >= 0 && type < static_cast<int8_t>(at::ScalarType::NumOptions),
            "autocast to type {}", type);
  return static_cast<at::ScalarType>(type);
}

void append_flags(std::string& body, const std::vector<uint8_t>& flags) {
  append_plain(body, static_cast<uint32_t>(flags.size()));
  append_plain_values<uint8_t>(body, flags);
}

std::vector<uint8_t> take_flags(std::string_view& body) {
  const auto count = take_plain<uint32_t>(body);
  return take_plain_values<uint8_t>(body, count);
}

bool is_absent(const Absent& absent, size_t index) {
  return index < absent.size() && absent[index];
}

/// The tensors that `flags` speak of: from the message, then from the values that it took.
std::vector<at::Tensor> place(const std::vector<uint8_t>& flags, CallData data) {
  std::vector<at::Tensor> present = transport::take_tensors(std::move(data.payload));
  std::vector<at::Tensor> tensors(flags.size());
  size_t next = 0;
  size_t next_value = 0;
  for (size_t index = 0; index < flags.size(); ++index) {
    if ((flags[index] & kPresent) != 0) {
      SMP_CHECK(next < present.size(), "tensor {} of a message is missing", index);
      tensors[index] = std::move(present[next++]);
    } else if ((flags[index] & kAbsent) != 0 && next_value < data.values.size()) {
      tensors[index] = take_value(std::move(data.values[next_value++].second));
    }
  }
  SMP_CHECK(next == present.size() && next_value == data.values.size(),
            "{} of {} tensors and {} of {} values have a place", next, present.size(), next_value,
            data.values.size());
  return tensors;
}

std::shared_ptr<transport::Payload> payload_of(std::vector<at::Tensor> tensors, Memory memory) {
  if (tensors.empty()) return nullptr;
  for (at::Tensor& tensor : tensors) {
    if (tensor.layout() != at::kStrided || tensor.is_quantized() ||
        !(tensor.is_cpu() || tensor.is_cuda())) {
      throw UserCodeError(
          "a tensor that is {} cannot travel to another partition; make it a dense one on the CPU "
          "or a GPU",
          tensor.toString());
    }
    // Conjugate and negative views are flags on other memory, which is all that travels.
    tensor = tensor.detach().resolve_conj().resolve_neg();
    if (memory == Memory::kCopy) tensor = tensor.clone();
  }
  return std::make_shared<TensorPayload>(std::move(tensors));
}

}  // namespace

CallModes CallModes::current() {
  CallModes modes;
  modes.grad_enabled = at::GradMode::is_enabled();
  modes.cpu_ = {at::autocast::is_autocast_enabled(at::kCPU),
                at::autocast::get_autocast_dtype(at::kCPU)};
  modes.cuda_ = {at::autocast::is_autocast_enabled(at::kCUDA),
                 at::autocast::get_autocast_dtype(at::kCUDA)};
  modes.cache_enabled_ = at::autocast::is_autocast_cache_enabled();
  return modes;
}

void CallModes::append_to(std::string& bytes) const {
  const int flags = (grad_enabled ? EncodedModes::kGrad : 0) |
                    (cpu_.enabled ? EncodedModes::kCpuAutocast : 0) |
                    (cuda_.enabled ? EncodedModes::kCudaAutocast : 0) |
                    (cache_enabled_ ? EncodedModes::kCache : 0);
  append_plain(bytes, EncodedModes{.flags = static_cast<uint8_t>(flags),
                                   .cpu_type = static_cast<int8_t>(cpu_.type),
                                   .cuda_type = static_cast<int8_t>(cuda_.type)});
}

CallModes CallModes::take_from(std::string_view& bytes) {
  const auto encoded = take_plain<EncodedModes>(bytes);
  CallModes modes;
  modes.grad_enabled = (encoded.flags & EncodedModes::kGrad) != 0;
  modes.cpu_ = {(encoded.flags & EncodedModes::kCpuAutocast) != 0, checked_type(encoded.cpu_type)};
  modes.cuda_ = {(encoded.flags & EncodedModes::kCudaAutocast) != 0,
                 checked_type(encoded.cuda_type)};
  modes.cache_enabled_ = (encoded.flags & EncodedModes::kCache) != 0;
  return modes;
}

void CallModes::apply() const {
  at::GradMode::set_enabled(grad_enabled);
  at::autocast::set_autocast_enabled(at::kCPU, cpu_.enabled);
  at::autocast::set_autocast_dtype(at::kCPU, cpu_.type);
  at::autocast::set_autocast_enabled(at::kCUDA, cuda_.enabled);
  at::autocast::set_autocast_dtype(at::kCUDA, cuda_.type);
  at::autocast::set_autocast_cache_enabled(cache_enabled_);
}

CallModes::Guard::Guard(const CallModes& modes)
    : previous_(std::make_unique<CallModes>(CallModes::current())) {
  modes.apply();
}

CallModes::Guard::~Guard() {
  at::autocast::clear_cache();
  previous_->apply();
}

CallData pack_call(const CallModes& modes, TensorTree tree, Memory memory, const Absent& absent) {
  std::string body;
  modes.append_to(body);
  std::vector<uint8_t> flags;
  std::string metas;
  std::vector<at::Tensor> present;
  for (size_t index = 0; index < tree.tensors.size(); ++index) {
    const at::Tensor& tensor = tree.tensors[index];
    const bool away = is_absent(absent, index);
    flags.push_back((away ? kAbsent : kPresent) | (tensor.requires_grad() ? kRequiresGrad : 0));
    if (away) {
      transport::append_meta(metas, tensor);
    } else {
      present.push_back(tensor);
    }
  }
  append_flags(body, flags);
  body += metas;
  body += tree.definition;
  return {.body = std::move(body), .payload = payload_of(std::move(present), memory)};
}

CallBody unpack_call(CallData data) {
  CallBody call;
  std::string_view body = data.body;
  call.modes = CallModes::take_from(body);
  const std::vector<uint8_t> flags = take_flags(body);
  for (const uint8_t flag : flags) {
    call.requires_grad.push_back((flag & kRequiresGrad) != 0);
    call.absent.emplace_back();
    if ((flag & kAbsent) != 0) call.absent.back() = transport::take_meta(body);
  }
  call.tree.definition = std::string(body);
  call.tree.tensors = place(flags, std::move(data));
  return call;
}

CallData pack_gradients(const std::vector<at::Tensor>& gradients, const Absent& absent) {
  std::vector<uint8_t> flags;
  std::vector<at::Tensor> present;
  for (size_t index = 0; index < gradients.size(); ++index) {
    const bool away = is_absent(absent, index);
    const bool here = gradients[index].defined() && !away;
    flags.push_back(away ? kAbsent : here ? kPresent : 0);
    if (here) present.push_back(gradients[index]);
  }
  std::string body;
  append_flags(body, flags);
  return {.body = std::move(body), .payload = payload_of(std::move(present), Memory::kShare)};
}

GradientBody unpack_gradients(CallData data) {
  std::string_view body = data.body;
  const std::vector<uint8_t> flags = take_flags(body);
  GradientBody gradients{.tensors = place(flags, std::move(data)), .absent = {}};
  for (size_t index = 0; index < flags.size(); ++index) {
    gradients.absent.push_back((flags[index] & kAbsent) != 0 &&
                               !gradients.tensors[index].defined());
  }
  return gradients;
}

std::shared_ptr<transport::Payload> payload_of_value(const at::Tensor& tensor) {
  return payload_of({tensor}, Memory::kShare);
}

at::Tensor take_value(std::shared_ptr<transport::Payload> payload) {
  std::vector<at::Tensor> tensors = transport::take_tensors(std::move(payload));
  SMP_CHECK(tensors.size() == 1, "a value of {} tensors", tensors.size());
  return std::move(tensors.front());
}

}  // namespace smp::pipeline
