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
  int64_t target;
  int32_t depth;
  Kind kind;
};
static_assert(std::is_trivially_copyable_v<Header>);

}  // namespace

transport::Message encode(Envelope envelope) {
  Header header{};  // zeroes the padding: no stray memory leaves the process
  header.step = envelope.step;
  header.microbatch = envelope.microbatch;
  header.call = envelope.call;
  header.visit = envelope.visit;
  header.target = envelope.target;
  header.depth = envelope.depth;
  header.kind = envelope.kind;
  std::string bytes(sizeof(Header) + envelope.body.size(), '\0');
  std::memcpy(bytes.data(), &header, sizeof(Header));
  std::memcpy(bytes.data() + sizeof(Header), envelope.body.data(), envelope.body.size());
  return {.source = -1, .bytes = std::move(bytes), .payload = std::move(envelope.payload)};
}

Envelope decode(transport::Message message) {
  SMP_CHECK(message.bytes.size() >= sizeof(Header), "a message of {} bytes from rank {}",
            message.bytes.size(), message.source);
  Header header{};
  std::memcpy(&header, message.bytes.data(), sizeof(Header));
  SMP_CHECK(header.kind <= Kind::kAbort, "a message of kind {} from rank {}",
            static_cast<int>(header.kind), message.source);
  return {.kind = header.kind,
          .step = header.step,
          .microbatch = header.microbatch,
          .call = header.call,
          .depth = header.depth,
          .visit = header.visit,
          .target = header.target,
          .body = message.bytes.substr(sizeof(Header)),
          .payload = std::move(message.payload),
          .source = message.source};
}

}  // namespace smp::pipeline
