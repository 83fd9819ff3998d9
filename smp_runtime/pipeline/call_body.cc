// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/call_body.h"

#include <cstring>
#include <memory>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/tensor_payload.h"

namespace smp::pipeline {
namespace {

using transport::TensorPayload;

// body = CallModes as in memory, number of tensors, one byte per tensor, stub
void append_bits(std::string& body, const std::vector<bool>& bits) {
  const auto count = static_cast<uint32_t>(bits.size());
  char raw[sizeof(count)];
  std::memcpy(raw, &count, sizeof(count));
  body.append(raw, sizeof(count));
  for (const bool bit : bits) body.push_back(bit ? 1 : 0);
}

std::vector<bool> take_bits(std::string_view& body) {
  uint32_t count = 0;
  SMP_CHECK(body.size() >= sizeof(count), "a call's body ends early");
  std::memcpy(&count, body.data(), sizeof(count));
  body.remove_prefix(sizeof(count));
  SMP_CHECK(body.size() >= count, "a call's body ends early");
  std::vector<bool> bits;
  for (const char bit : body.substr(0, count)) bits.push_back(bit != 0);
  body.remove_prefix(count);
  return bits;
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

Work pack_call(const CallModes& modes, TensorTree tree, Memory memory) {
  static_assert(std::is_trivially_copyable_v<CallModes>);
  std::string body(sizeof(CallModes), '\0');
  std::memcpy(body.data(), &modes, sizeof(modes));
  std::vector<bool> requires_grad;
  for (const at::Tensor& tensor : tree.tensors) requires_grad.push_back(tensor.requires_grad());
  append_bits(body, requires_grad);
  body += tree.stub;
  return {.body = std::move(body), .payload = payload_of(std::move(tree.tensors), memory)};
}

CallBody unpack_call(Work work) {
  CallBody call;
  std::string_view body = work.body;
  SMP_CHECK(body.size() >= sizeof(CallModes), "a call's body of {} bytes", body.size());
  std::memcpy(&call.modes, body.data(), sizeof(CallModes));
  body.remove_prefix(sizeof(CallModes));
  call.requires_grad = take_bits(body);
  call.tree = {.stub = std::string(body),
               .tensors = transport::take_tensors(std::move(work.payload))};
  SMP_CHECK(call.tree.tensors.size() == call.requires_grad.size(), "{} tensors, {} flags",
            call.tree.tensors.size(), call.requires_grad.size());
  return call;
}

Work pack_gradients(const std::vector<at::Tensor>& gradients) {
  std::vector<bool> defined;
  std::vector<at::Tensor> present;
  for (const at::Tensor& gradient : gradients) {
    defined.push_back(gradient.defined());
    if (gradient.defined()) present.push_back(gradient);
  }
  std::string body;
  append_bits(body, defined);
  return {.body = std::move(body), .payload = payload_of(std::move(present), Memory::kShare)};
}

std::vector<at::Tensor> unpack_gradients(Work work) {
  std::string_view body = work.body;
  const std::vector<bool> defined = take_bits(body);
  std::vector<at::Tensor> present = transport::take_tensors(std::move(work.payload));
  std::vector<at::Tensor> gradients(defined.size());
  size_t next = 0;
  for (size_t index = 0; index < defined.size(); ++index) {
    if (!defined[index]) continue;
    SMP_CHECK(next < present.size(), "a gradient is missing");
    gradients[index] = std::move(present[next++]);
  }
  return gradients;
}

}  // namespace smp::pipeline
