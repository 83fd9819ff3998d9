// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/payload_dictionary.h"

#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {

void PayloadDictionary::shorten(int destination, Envelope& envelope) {
  const bool is_call = envelope.kind == Kind::kForward || envelope.kind == Kind::kForwardReply ||
                       envelope.kind == Kind::kBackward || envelope.kind == Kind::kBackwardReply;
  const size_t size = envelope.body.size();
  if (!is_call || size < kShortest || size > kMostBytes) return;
  Sent& sent = sent_.at(static_cast<size_t>(destination));
  if (const auto found = sent.numbers.find(envelope.body); found != sent.numbers.end()) {
    envelope.number = found->second;
    envelope.body.clear();
    return;
  }
  if (sent.bytes + size > kMostBytes) sent = {};
  sent.bytes += size;
  envelope.number = static_cast<int32_t>(sent.numbers.size());
  sent.numbers.emplace(envelope.body, envelope.number);
}

void PayloadDictionary::restore(Envelope& envelope) {
  if (envelope.number < 0) return;
  std::vector<std::string>& bodies = received_.at(static_cast<size_t>(envelope.source));
  const auto number = static_cast<size_t>(std::exchange(envelope.number, -1));
  if (!envelope.body.empty()) {
    if (number == 0) bodies.clear();
    SMP_CHECK(number == bodies.size(), "rank {} sends body {}, and {} are known", envelope.source,
              number, bodies.size());
    bodies.push_back(envelope.body);
    return;
  }
  SMP_CHECK(number < bodies.size(), "rank {} names body {} of {}", envelope.source, number,
            bodies.size());
  envelope.body = bodies[number];
}

}  // namespace smp::pipeline
