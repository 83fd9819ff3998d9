// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/suggested_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>

#include <fmt/format.h>

#include "entrypoint/report/job_numbers.h"
#include "entrypoint/report/job_record.h"
#include "entrypoint/report/record_json.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/text.h"

namespace entrypoint::report {
namespace {

using nlohmann::json;

constexpr std::size_t kMostCandidates = 2000;  // in a picture

/// Throws ConfigError for what is no such number.
double positive(const json& from, const char* name) {
  const double number = from.at(name);
  if (std::isfinite(number) && number > 0) return number;
  throw smp::ConfigError("{} is {}; expected more than 0", name, number);
}

SuggestedStep step_of(const json& document) {
  const json& row = document.at("predicted");
  const json& times = row.at("times");
  const double seconds = positive(row, "step_seconds");
  const double computed =
      times.at("computing").get<double>() + times.at("recomputing").get<double>();
  const std::int64_t buffers = record_number(row.at("memory").at("buffers"));
  SuggestedStep step{.step_ms = 1e3 * seconds,
                     .computed = computed / seconds,
                     .waited = times.at("waiting").get<double>() / seconds,
                     .memory_bytes = record_number(row.at("memory_bytes")) - buffers,
                     .sent_bytes = record_number(row.at("sent_bytes"))};
  for (const json& one : document.at("candidates")) {
    if (step.candidates.size() == kMostCandidates) break;
    step.candidates.push_back({.memory_bytes = record_number(one.at("memory_bytes")),
                               .samples_per_second = positive(one, "samples_per_second"),
                               .fits = one.at("fits"),
                               .settings = one.at("mp_parameters").dump()});
  }
  return step;
}

/// The first setting that is not the job's; empty: none.
std::string difference(const json& suggested, const json& job) {
  for (const auto& [name, value] : suggested.items()) {
    const auto found = job.find(name);
    if (found == job.end() || *found != value) return name;
  }
  return "";
}

/// A report needs no more digits.
double shortened(double value) { return std::round(1e4 * value) / 1e4; }

json figures(double step_ms, double computed, double waited, std::int64_t memory,
             std::int64_t sent) {
  return {{"step_ms", shortened(step_ms)},
          {"computed", shortened(computed)},
          {"waited", shortened(waited)},
          {"memory_bytes", memory},
          {"sent_bytes", sent}};
}

json measured(const JobRecord& job, const JobNumbers& numbers) {
  constexpr std::array kKinds{"parameters", "persistent", "peak_live",
                              "gradients",  "optimizer",  "activations"};
  std::int64_t memory = 0;
  for (const RankRecord& record : job.ranks) memory = std::max(memory, most_bytes(record, kKinds));
  const auto ranks = static_cast<double>(std::max<std::size_t>(1, numbers.ranks.size()));
  double step = 0, computed = 0, waited = 0, sent = 0;
  for (const RankNumbers& rank : numbers.ranks) {
    step += rank.step_ms * (1 - rank.data) / ranks;
    computed += rank.step_ms * rank.computed / ranks;
    waited += rank.step_ms * rank.waited / ranks;
    sent += static_cast<double>(rank.bytes) / ranks;
  }
  const double whole = step > 0 ? step : 1;
  return figures(step, computed / whole, waited / whole, memory, std::llround(sent));
}

}  // namespace

std::variant<SuggestedStep, std::string> read_suggested_step(const std::filesystem::path& file,
                                                             const json& settings) {
  try {
    const json document = smp::parse_json<json>(smp::read_text(file), file.string());
    const std::string other = difference(document.at("settings"), settings);
    if (other.empty()) return step_of(document);
    return fmt::format("{} is of other settings than the job's: \"{}\" differs", file.string(),
                       other);
  } catch (const std::exception& error) {
    return fmt::format("{} is nothing that train --suggest --write left: {}", file.string(),
                       error.what());
  }
}

json suggested_json(const JobRecord& job, const JobNumbers& numbers) {
  const SuggestedStep& step = *job.suggested;
  json candidates = json::array();
  for (const PredictedCandidate& one : step.candidates) {
    candidates.push_back({one.memory_bytes, one.samples_per_second, one.fits, one.settings});
  }
  return {{"predicted",
           figures(step.step_ms, step.computed, step.waited, step.memory_bytes, step.sent_bytes)},
          {"measured", measured(job, numbers)},
          {"candidates", std::move(candidates)}};
}

}  // namespace entrypoint::report
