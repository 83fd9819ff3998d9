// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/envelope.h"

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
  int64_t run;
  int64_t ranks;
  int32_t depth;
  int32_t caller;
  int32_t hop;
  uint32_t hops;
  uint32_t takes;
  uint32_t exports;
  uint32_t drops;
  int32_t number;
  Kind kind;
};
struct EncodedHop {
  int64_t target;
  int64_t owner;
};
static_assert(std::is_trivially_copyable_v<Header> && std::is_trivially_copyable_v<EncodedHop> &&
              std::is_trivially_copyable_v<Export>);

template <typename T>
void append(std::string& bytes, const std::vector<T>& items) {
  if (items.empty()) return;
  bytes.append(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(T));
}

/// Reads `count` items from `at` on, and moves it behind them.
template <typename T>
std::vector<T> read(const std::string& bytes, size_t& at, uint32_t count) {
  std::vector<T> items(count);
  if (count > 0) std::memcpy(items.data(), bytes.data() + at, count * sizeof(T));
  at += count * sizeof(T);
  return items;
}

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
  header.takes = static_cast<uint32_t>(envelope.takes.size());
  header.exports = static_cast<uint32_t>(envelope.exports.size());
  header.drops = static_cast<uint32_t>(envelope.drops.size());
  header.number = envelope.number;
  header.kind = envelope.kind;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  for (const Hop& hop : envelope.route) {
    const EncodedHop encoded{.target = hop.target, .owner = hop.owner};
    bytes.append(reinterpret_cast<const char*>(&encoded), sizeof(encoded));
  }
  append(bytes, envelope.takes);
  append(bytes, envelope.exports);
  append(bytes, envelope.drops);
  bytes += envelope.body;
  return {.source = -1, .bytes = std::move(bytes), .payload = std::move(envelope.payload)};
}

Envelope decode(transport::Message message) {
  SMP_CHECK(message.bytes.size() >= sizeof(Header), "a message of {} bytes from rank {}",
            message.bytes.size(), message.source);
  Header header{};
  std::memcpy(&header, message.bytes.data(), sizeof(Header));
  const size_t size = sizeof(Header) + header.hops * sizeof(EncodedHop) +
                      (size_t{header.takes} + header.drops) * sizeof(ValueId) +
                      header.exports * sizeof(Export);
  SMP_CHECK(header.kind <= Kind::kAbort && message.bytes.size() >= size,
            "a message of kind {} and {} bytes from rank {}", static_cast<int>(header.kind),
            message.bytes.size(), message.source);
  size_t at = sizeof(Header);
  Route route;
  for (const EncodedHop& encoded : read<EncodedHop>(message.bytes, at, header.hops)) {
    route.push_back({.owner = static_cast<int>(encoded.owner), .target = encoded.target});
  }
  SMP_CHECK(route.empty() || (header.hop >= 0 && header.hop < static_cast<int>(route.size())),
            "hop {} of {} from rank {}", header.hop, route.size(), message.source);
  auto takes = read<ValueId>(message.bytes, at, header.takes);
  auto exports = read<Export>(message.bytes, at, header.exports);
  auto drops = read<ValueId>(message.bytes, at, header.drops);
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
          .takes = std::move(takes),
          .exports = std::move(exports),
          .drops = std::move(drops),
          .body = message.bytes.substr(at),
          .number = header.number,
          .payload = std::move(message.payload),
          .source = message.source};
}

}  // namespace smp::pipeline
