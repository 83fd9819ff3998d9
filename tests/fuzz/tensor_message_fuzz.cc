// SPDX-License-Identifier: Apache-2.0
// A message with tensors as a peer may send it, from its frame to the call that it asks for: what
// is damaged is refused with an InternalError, a frame that announces too much with a HostError,
// and tensors have the memory that their shapes need.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/plain_bytes.h"
#include "smp_runtime/pipeline/engine/call_body.h"
#include "smp_runtime/pipeline/envelope.h"
#include "smp_runtime/transport/channel/tensor_message.h"
#include "tests/fuzz/target.h"

namespace {

using namespace smp::pipeline;   // a program, not a header
using namespace smp::transport;  // likewise

constexpr std::int64_t kMostBytes = 1 << 20;

/// True if the metas are none, or of tensors for which this program has the memory.
bool are_small(const MessageFrame& frame, std::string_view metas) {
  std::int64_t left = kMostBytes;
  for (std::uint32_t index = 0; index < frame.tensors && left >= 0; ++index) {
    std::int64_t elements = 1;
    for (const std::int64_t size : take_meta(metas).sizes) elements *= size;
    left -= elements > kMostBytes ? elements : 16 * elements;
  }
  return left >= 0;
}

std::optional<Message> arrive(const MessageFrame& frame, const std::string& head) {
  ArrivingMessage message(frame, head);
  std::size_t number = 0;
  const auto rooms = message.rooms();
  for (const Received& one : message.tensors()) {
    if (!one.tensor.defined()) return std::nullopt;  // comes from another GPU
    fuzz::require(one.tensor.sizes() == at::IntArrayRef(one.meta.sizes));
    fuzz::require(rooms[number].size() == one.tensor.nbytes());
    fuzz::require(one.tensor.nbytes() <= one.tensor.storage().nbytes());
    if (!rooms[number].empty()) std::memset(rooms[number].data(), 1, rooms[number].size());
    ++number;
  }
  StagedCopies copies;
  return std::move(message).finish(-1, copies);
}

void look_at(Message message) {
  message.source = 1;
  Envelope envelope = decode(std::move(message));
  const auto data = [&] { return CallData{.body = envelope.body, .payload = envelope.payload}; };
  try {
    const CallBody call = unpack_call(data());
    fuzz::require(call.requires_grad.size() == call.tree.tensors.size());
    const CallModes::Guard guard(call.modes);
  } catch (const smp::InternalError&) {
  }
  const GradientBody gradients = unpack_gradients(data());
  fuzz::require(gradients.absent.size() == gradients.tensors.size());
}

std::string sent(CallData data, Kind kind) {
  Message message = encode({.kind = kind,
                            .route = {{.owner = 0, .target = 3}},
                            .body = data.body,
                            .payload = data.payload});
  StagedCopies copies;
  const PackedMessage packed = pack(outgoing(std::move(message)), std::nullopt, copies);
  std::string text;
  smp::append_plain(text, packed.frame);
  return text + packed.head;
}

}  // namespace

std::map<std::string, std::string> fuzz::made_inputs() {
  const std::vector<at::Tensor> tensors{at::ones({2, 3}), at::ones({4}, at::kLong)};
  const auto call = [&](const Absent& absent) {
    return sent(
        pack_call(CallModes(), {.definition = "(0, 1)", .tensors = tensors}, Memory::kCopy, absent),
        Kind::kForward);
  };
  MessageFrame damaged;
  const std::string whole = call({});
  std::memcpy(&damaged, whole.data(), sizeof(damaged));
  const std::size_t metas = damaged.meta_bytes;
  damaged.message_bytes += damaged.meta_bytes + 1;
  damaged.meta_bytes = ~std::uint64_t{0};
  std::string sum_wraps;
  smp::append_plain(sum_wraps, damaged);
  std::string packed = whole;  // two elements a byte
  const auto packed_type = static_cast<std::int64_t>(at::kQUInt4x2);
  std::memcpy(packed.data() + packed.size() - metas, &packed_type, sizeof(packed_type));
  std::string modes = "\xff\x7f\x7f";  // no types, in the place of a call's modes
  return {{"call", whole},
          {"absent", call({true})},
          {"gradients", sent(pack_gradients({tensors[0], at::Tensor()}), Kind::kBackward)},
          {"no_tensors", sent({.body = "text"}, Kind::kAbort)},
          {"packed_type", packed},
          {"no_modes", sent({.body = modes}, Kind::kForward)},
          {"sum_wraps", sum_wraps + whole.substr(sizeof(damaged))}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const std::string text = fuzz::text_of(bytes, count);
  std::string_view input = text;
  if (input.size() < sizeof(MessageFrame)) return 0;
  auto frame = smp::take_plain<MessageFrame>(input);
  const std::string head(input);
  // As announced, and with lengths that fit: most of what is generated would end at them.
  for (const bool fits : {false, true}) {
    if (fits) {
      frame.message_bytes = std::min<std::uint64_t>(frame.message_bytes, head.size());
      frame.meta_bytes = head.size() - frame.message_bytes;
    }
    const bool is_whole =
        frame.message_bytes <= head.size() && frame.meta_bytes == head.size() - frame.message_bytes;
    try {
      if (is_whole && !are_small(frame, std::string_view(head).substr(frame.message_bytes)))
        continue;
      if (auto message = arrive(frame, head)) look_at(std::move(*message));
    } catch (const smp::InternalError&) {
    } catch (const smp::HostError&) {
    } catch (const c10::Error&) {  // a type, or a device, that this Torch cannot make
    }
  }
  return 0;
}
