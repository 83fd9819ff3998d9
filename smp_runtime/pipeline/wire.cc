// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/wire.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {
namespace {

// All ranks of a job run the same binary on the same kind of machine: fields travel as they are in
// memory.
struct Header {
  int64_t step;
  int64_t microbatch;
  uint64_t call;
  int64_t visit;
  int32_t depth;
  int32_t caller;
  int32_t hop;
  uint32_t hops;
  Kind kind;
};
struct WireHop {
  int64_t target;
  int64_t owner;
};
static_assert(std::is_trivially_copyable_v<Header> && std::is_trivially_copyable_v<WireHop>);

}  // namespace

transport::Message encode(Envelope envelope) {
  Header header{};  // zeroes the padding: no stray memory leaves the process
  header.step = envelope.step;
  header.microbatch = envelope.microbatch;
  header.call = envelope.call;
  header.visit = envelope.visit;
  header.depth = envelope.depth;
  header.caller = envelope.caller;
  header.hop = envelope.hop;
  header.hops = static_cast<uint32_t>(envelope.route.size());
  header.kind = envelope.kind;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  for (const Hop& hop : envelope.route) {
    const WireHop wire{.target = hop.target, .owner = hop.owner};
    bytes.append(reinterpret_cast<const char*>(&wire), sizeof(wire));
  }
  bytes += envelope.body;
  return {.source = -1, .bytes = std::move(bytes), .payload = std::move(envelope.payload)};
}

Envelope decode(transport::Message message) {
  SMP_CHECK(message.bytes.size() >= sizeof(Header), "a message of {} bytes from rank {}",
            message.bytes.size(), message.source);
  Header header{};
  std::memcpy(&header, message.bytes.data(), sizeof(Header));
  const size_t body_at = sizeof(Header) + header.hops * sizeof(WireHop);
  SMP_CHECK(header.kind <= Kind::kAbort && message.bytes.size() >= body_at,
            "a message of kind {} and {} bytes from rank {}", static_cast<int>(header.kind),
            message.bytes.size(), message.source);
  Route route;
  for (uint32_t hop = 0; hop < header.hops; ++hop) {
    WireHop wire{};
    std::memcpy(&wire, message.bytes.data() + sizeof(Header) + hop * sizeof(wire), sizeof(wire));
    route.push_back({.owner = static_cast<int>(wire.owner), .target = wire.target});
  }
  SMP_CHECK(route.empty() || (header.hop >= 0 && header.hop < static_cast<int>(route.size())),
            "hop {} of {} from rank {}", header.hop, route.size(), message.source);
  return {.kind = header.kind,
          .step = header.step,
          .microbatch = header.microbatch,
          .call = header.call,
          .depth = header.depth,
          .visit = header.visit,
          .caller = header.caller,
          .hop = header.hop,
          .route = std::move(route),
          .body = message.bytes.substr(body_at),
          .payload = std::move(message.payload),
          .source = message.source};
}

}  // namespace smp::pipeline
