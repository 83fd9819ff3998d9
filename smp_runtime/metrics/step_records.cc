// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/step_records.h"

#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "smp_runtime/core/log.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/metrics/process_memory.h"
#include "smp_runtime/record/record_file.h"

namespace smp::metrics {
namespace {

using nlohmann::ordered_json;
using topology::Group;

constexpr int kLinesBeforeDoubling = 1000;
constexpr int kLinesOfATree = 30;  // in the log, its heading among them
constexpr int kLinesOfARecord = 200;

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

void tell_partition(session::Session& session, const partition::JobPartition& decided,
                    const partition::ModuleTree& tree) {
  if (session.ranks().rank != 0) return;
  const partition::Assignment& assignment = decided.assignment;
  const std::string balance = partition::balance_line(assignment, tree);
  const std::string whole = partition::assignment_tree(assignment, tree);
  SMP_LOG(info, "{}", partition::assignment_line(assignment, tree));
  SMP_LOG(info, "{}", balance);
  SMP_LOG(info, "{}", decided.summary);
  if (std::ranges::count(whole, '\n') < kLinesOfATree || log::enabled(log::Level::kDebug)) {
    SMP_LOG(info, "Partition tree:{}", whole);
  } else {
    SMP_LOG(info, "Partition tree (folded; SM_LOG_LEVEL=10 shows all of it):{}",
            partition::assignment_tree(assignment, tree, kLinesOfATree - 1));
  }
  const auto& recorder = session.recorder();
  if (!recorder || !recorder->records()) return;
  ordered_json record{{"summary", decided.summary},
                      {"balance", balance},
                      {"tree", partition::assignment_tree(assignment, tree, kLinesOfARecord)},
                      {"times", partition::times_of(assignment, tree)}};
  if (const auto& predicted = decided.predicted) {
    record["predicted"] = {
        {"step_ms", predicted->step_ms}, {"use", predicted->use}, {"bytes", predicted->bytes}};
  }
  recorder->note("partition", json_line(record));
}

StepRecords::StepRecords(std::shared_ptr<record::Recorder> recorder,
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
  recorder_->note("memory", json_line(ordered_json{{"time", record::unix_time()},
                                                   {"peak", peak_memory_bytes()},
                                                   {"kinds", std::move(kinds)},
                                                   {"formula", formula_()}}));
}

void StepRecords::event(std::string_view kind, std::string_view text) {
  recorder_->note("event", json_line(ordered_json{
                               {"time", record::unix_time()}, {"kind", kind}, {"text", text}}));
}

}  // namespace smp::metrics
