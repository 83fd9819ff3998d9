// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/step_records.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "smp_runtime/core/json_line.h"
#include "smp_runtime/measure/record_file.h"
#include "smp_runtime/metrics/process_memory.h"

namespace smp::metrics {
namespace {

using nlohmann::ordered_json;
using topology::Group;

constexpr int kLinesBeforeDoubling = 1000;

}  // namespace

void note_job(session::Session& session, const JobFacts& facts) {
  const auto& recorder = session.recorder();
  if (!recorder || !recorder->records()) return;
  session::Groups& groups = session.groups();
  recorder->note(
      "job", json_line(ordered_json{{"settings", ordered_json::parse(session.config().as_json())},
                                    {"job_name", session.options().job_name},
                                    {"image", session.options().image},
                                    {"ranks", session.ranks().size},
                                    {"groups",
                                     {{"PP", groups.ranks(Group::kPp)},
                                      {"TP", groups.ranks(Group::kTp)},
                                      {"RDP", groups.ranks(Group::kRdp)},
                                      {"DP", groups.ranks(Group::kDp)}}},
                                    {"smp", facts.library},
                                    {"torch", facts.torch},
                                    {"device", facts.device}}));
}

StepRecords::StepRecords(std::shared_ptr<measure::Recorder> recorder,
                         std::function<MemoryLedger()> ledger,
                         std::function<std::int64_t()> formula)
    : recorder_(std::move(recorder)),
      ledger_(std::move(ledger)),
      formula_(std::move(formula)),
      interval_(std::chrono::seconds(1)) {}

void StepRecords::end_step(std::int64_t samples, bool trained) {
  recorder_->describe_step(samples, trained);
  const Clock::time_point now = Clock::now();
  if (!recorder_->records() || now < due_) return;
  due_ = now + interval_;
  if (++lines_ % kLinesBeforeDoubling == 0) interval_ *= 2;
  ordered_json kinds = ordered_json::object();
  for (const auto& [kind, bytes] : ledger_()) kinds[kind] = bytes;
  recorder_->note("memory", json_line(ordered_json{{"time", measure::unix_time()},
                                                   {"peak", peak_memory_bytes()},
                                                   {"kinds", std::move(kinds)},
                                                   {"formula", formula_()}}));
}

void StepRecords::note(std::string_view key, std::string_view json) {
  if (recorder_->records()) recorder_->note(key, json);
}

void StepRecords::event(std::string_view kind, std::string_view text) {
  note("event",
       json_line(ordered_json{{"time", measure::unix_time()}, {"kind", kind}, {"text", text}}));
}

}  // namespace smp::metrics
