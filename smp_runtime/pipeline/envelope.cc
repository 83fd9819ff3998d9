// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/envelope.h"

#include <string_view>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/plain_bytes.h"

namespace smp::pipeline {
namespace {

struct Header {
  int64_t step;
  int64_t microbatch;
  uint64_t call;
  int64_t run;
  int64_t ranks;
  int32_t depth;
  int32_t caller;
  int32_t hop;
  uint32_t hops;
  uint32_t inputs;
  uint32_t outputs_kept;
  uint32_t released;
  int32_t number;
  Kind kind;
};
struct EncodedHop {
  int64_t target;
  int64_t owner;
};

}  // namespace

transport::Message encode(Envelope envelope) {
  Header header{};  // zeroes the padding: no stray memory leaves the process
  header.step = envelope.step;
  header.microbatch = envelope.microbatch;
  header.call = envelope.call;
  header.run = envelope.run;
  header.ranks = envelope.ranks;
  header.depth = envelope.depth;
  header.caller = envelope.caller;
  header.hop = envelope.hop;
  header.hops = static_cast<uint32_t>(envelope.route.size());
  header.inputs = static_cast<uint32_t>(envelope.inputs.size());
  header.outputs_kept = static_cast<uint32_t>(envelope.outputs_kept.size());
  header.released = static_cast<uint32_t>(envelope.released.size());
  header.number = envelope.number;
  header.kind = envelope.kind;
  std::string bytes;
  append_plain(bytes, header);
  for (const Hop& hop : envelope.route) {
    append_plain(bytes, EncodedHop{.target = hop.target, .owner = hop.owner});
  }
  append_plain_values<ValueId>(bytes, envelope.inputs);
  append_plain_values<KeptOutput>(bytes, envelope.outputs_kept);
  append_plain_values<ValueId>(bytes, envelope.released);
  bytes += envelope.body;
  return {.source = -1, .bytes = std::move(bytes), .payload = std::move(envelope.payload)};
}

Envelope decode(transport::Message message) {
  SMP_CHECK(message.bytes.size() >= sizeof(Header), "a message of {} bytes from rank {}",
            message.bytes.size(), message.source);
  std::string_view bytes = message.bytes;
  const auto header = take_plain<Header>(bytes);
  SMP_CHECK(header.kind <= Kind::kAbort, "a message of kind {} from rank {}",
            static_cast<int>(header.kind), message.source);
  Route route;
  for (const EncodedHop& encoded : take_plain_values<EncodedHop>(bytes, header.hops)) {
    route.push_back({.owner = static_cast<int>(encoded.owner), .target = encoded.target});
  }
  SMP_CHECK(route.empty() || (header.hop >= 0 && header.hop < static_cast<int>(route.size())),
            "hop {} of {} from rank {}", header.hop, route.size(), message.source);
  auto inputs = take_plain_values<ValueId>(bytes, header.inputs);
  auto outputs_kept = take_plain_values<KeptOutput>(bytes, header.outputs_kept);
  auto released = take_plain_values<ValueId>(bytes, header.released);
  return {.kind = header.kind,
          .step = header.step,
          .microbatch = header.microbatch,
          .call = header.call,
          .depth = header.depth,
          .run = header.run,
          .ranks = header.ranks,
          .caller = header.caller,
          .hop = header.hop,
          .route = std::move(route),
          .inputs = std::move(inputs),
          .outputs_kept = std::move(outputs_kept),
          .released = std::move(released),
          .body = std::string(bytes),
          .number = header.number,
          .payload = std::move(message.payload),
          .source = message.source};
}

}  // namespace smp::pipeline
