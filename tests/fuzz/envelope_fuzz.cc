// SPDX-License-Identifier: Apache-2.0
// Messages of the pipeline engine as a peer may send them, one after the other: each is refused
// with an InternalError or says the same once it is written again; a body is never one of another
// message.
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/plain_bytes.h"
#include "smp_runtime/pipeline/envelope.h"
#include "smp_runtime/pipeline/payload_dictionary.h"
#include "smp_runtime/pipeline/step_order.h"
#include "tests/fuzz/target.h"

namespace {

using namespace smp::pipeline;  // a program, not a header
using fuzz::require;

constexpr int kSource = 1;

/// Messages in one input, each behind its size.
std::string joined(const std::vector<std::string>& messages) {
  std::string input;
  for (const std::string& message : messages) {
    smp::append_plain(input, static_cast<std::uint16_t>(message.size()));
    input += message;
  }
  return input;
}

std::optional<std::string> take_message(std::string_view& input) {
  if (input.size() < sizeof(std::uint16_t)) return std::nullopt;
  const auto size = smp::take_plain<std::uint16_t>(input);
  const std::string message(input.substr(0, size));
  input.remove_prefix(message.size());
  return message;
}

void look_at_order(std::string_view body) {
  try {
    const RankOrder order = RankOrder::decode(body);
    require(RankOrder::decode(order.encode()).work == order.work);
  } catch (const smp::InternalError&) {
  }
  StepOrder driver({.active_microbatches = 2}, {.deterministic = true}, /*ranks=*/2);
  driver.begin_step("step", 2);
  try {
    driver.add_recorded(kSource, body);
    driver.finish_step(1, std::chrono::milliseconds(1));
    for (int rank = 0; rank < 2; ++rank) static_cast<void>(driver.of_rank(rank));
  } catch (const smp::InternalError&) {
  }
}

void look_at(const std::string& message, PayloadDictionary& bodies, std::set<std::string>& told) {
  try {
    Envelope envelope = decode({.source = kSource, .bytes = message, .payload = nullptr});
    require(envelope.route.empty() ||
            (envelope.hop >= 0 && envelope.hop < static_cast<int>(envelope.route.size())));
    require(envelope.body.size() <= message.size());
    const std::string again = encode(envelope).bytes;
    require(encode(decode({.source = kSource, .bytes = again, .payload = nullptr})).bytes == again);
    if (!envelope.body.empty()) told.insert(envelope.body);
    bodies.restore(envelope);
    require(envelope.body.empty() || told.contains(envelope.body));
    if (envelope.kind == Kind::kStepBegin || envelope.kind == Kind::kRecordedOrder) {
      look_at_order(envelope.body);
    }
  } catch (const smp::InternalError&) {
  }
}

}  // namespace

std::map<std::string, std::string> fuzz::made_inputs() {
  const std::string body(PayloadDictionary::kShortest, 'b');
  const Envelope call{.kind = Kind::kForward,
                      .step = 3,
                      .microbatch = 1,
                      .call = (std::uint64_t{1} << 32) | 7,
                      .depth = 2,
                      .run = 4,
                      .ranks = 2,
                      .caller = 1,
                      .hop = 1,
                      .route = {{.owner = 0, .target = 11}, {.owner = 2, .target = 12}},
                      .inputs = {5, 6},
                      .outputs_kept = {{.output = 0, .destination = 2, .id = 9}},
                      .released = {4},
                      .body = body};
  Envelope reply = call;
  reply.kind = Kind::kForwardReply;
  PayloadDictionary sent(2);
  std::vector<std::string> calls;
  for (const Envelope& one : {call, reply, call}) {
    Envelope short_one = one;
    sent.shorten(0, short_one);
    calls.push_back(encode(short_one).bytes);
  }
  const RankOrder order{.mode = OrderMode::kPlanned,
                        .work = {{.microbatch = 0}, {.microbatch = 1, .is_deferred = true}},
                        .patience = std::chrono::milliseconds(1000)};
  std::vector<RecordedRun> runs;
  for (const std::int64_t run : {0, 1, 2}) runs.push_back({.run = run, .phase = run % 2});
  const std::string recorded = encode_runs(runs);
  const auto plain = [](Kind kind, const std::string& text) {
    return encode({.kind = kind, .step = 3, .body = text}).bytes;
  };
  return {{"calls", joined(calls)},
          {"step",
           joined({plain(Kind::kStepBegin, order.encode()), plain(Kind::kRecordedOrder, recorded),
                   plain(Kind::kMicrobatchDone, ""), plain(Kind::kStepEnd, "results")})},
          {"abort", joined({plain(Kind::kInquiry, ""), plain(Kind::kAnswer, "\n  nothing"),
                            plain(Kind::kAbort, "rank 1: out of memory")})}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const std::string text = fuzz::text_of(bytes, count);
  std::string_view input = text;
  PayloadDictionary bodies(kSource + 1);
  std::set<std::string> told;
  while (const auto message = take_message(input)) look_at(*message, bodies, told);
  return 0;
}
