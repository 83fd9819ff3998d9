// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/told_steps.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrypoint/report/record_json.h"

namespace entrypoint::report {
namespace {

using nlohmann::json;

constexpr std::size_t kGap = 4;      // characters between a word and its number
constexpr double kFirstPause = 0.2;  // [s]
constexpr std::int64_t kStepsBeforeDoubling = 5000;

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

/// The number behind `word`, which stands alone or behind an underscore: "loss: 1.5", not "lossy".
template <typename Number>
std::optional<Number> number_behind(std::string_view line, std::string_view word) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  for (auto from = line.begin();; ++from) {
    from = std::search(from, line.end(), word.begin(), word.end(), same);
    if (from == line.end()) return std::nullopt;
    const auto behind = from + static_cast<std::ptrdiff_t>(word.size());
    if (from != line.begin() && is_letter(*(from - 1))) continue;
    if (behind != line.end() && is_letter(*behind)) continue;
    const std::string_view rest(behind, line.end());
    const std::size_t begin = rest.find_first_not_of(" \t:='\"[(");
    if (begin == std::string_view::npos || begin > kGap) continue;
    Number number{};
    const auto read = std::from_chars(rest.data() + begin, rest.data() + rest.size(), number);
    if (read.ec == std::errc()) return number;
  }
}

}  // namespace

ToldLine read_told_line(std::string_view line) {
  ToldLine told{.loss = number_behind<double>(line, "loss")};
  if (!told.loss) return told;  // nearly all lines of most scripts
  for (const std::string_view word : {"step", "iteration", "iter"}) {
    if (!told.step) told.step = number_behind<std::int64_t>(line, word);
  }
  if (told.step && *told.step < 0) told.step.reset();
  return told;
}

void StepLog::add(int rank, std::string_view line) {
  if (file_ && rank != rank_) return;
  const ToldLine told = read_told_line(line);
  if (!told.loss) return;
  step_ = told.step.value_or(step_ + 1);
  if (!file_) {
    rank_ = rank;
    interval_ = kFirstPause;
    file_ = std::make_unique<smp::record::RecordFile>(
        (folder_ / fmt::format("log-{}.jsonl", host_)).string());
    file_->add(json{{"format", 1}, {"host", host_}}.dump());
  }
  const double time = smp::record::unix_time();
  if (time < due_) return;
  due_ = time + interval_;
  if (++kept_ % kStepsBeforeDoubling == 0) interval_ *= 2;
  file_->add(json{time, step_, *told.loss}.dump());  // a loss that is no number becomes null
}

ToldSteps read_step_log(const std::filesystem::path& file) {
  ToldSteps told{.source =
                     file.stem().string().substr(std::string_view("log-").size()) + "'s output"};
  std::ifstream stream(file);
  std::string line;
  while (std::getline(stream, line) && !stream.eof()) {
    const json row = record_line(line);
    if (!row.is_array() || row.size() < 3 || !row[0].is_number()) continue;
    const auto number = smp::whole_number<std::int64_t>(row[1]);
    if (!number || !is_record_number(*number)) continue;
    ToldStep step{.time = row[0], .step = *number};
    if (row[2].is_number()) step.loss = row[2];
    if (!told.steps.empty() && step.step > told.steps.back().step) {
      const ToldStep& before = told.steps.back();
      step.seconds = (step.time - before.time) / static_cast<double>(step.step - before.step);
    }
    told.steps.push_back(step);
  }
  return told;
}

ToldSteps read_metrics(const std::filesystem::path& file) {
  ToldSteps told{.source = file.string()};
  std::ifstream stream(file);
  std::string line;
  double time = 0;
  while (std::getline(stream, line)) {
    const json row = record_line(line);
    const auto number = [&](const char* name) {
      return row.is_object() && row.contains(name) && row[name].is_number()
                 ? row[name].get<double>()
                 : std::numeric_limits<double>::quiet_NaN();
    };
    const double step = number("step");
    if (!(std::abs(step) <= static_cast<double>(kLargestNumber))) continue;
    const double seconds = number("seconds");
    time += std::isnan(seconds) ? 0 : seconds;
    told.steps.push_back({.time = time,
                          .step = static_cast<std::int64_t>(step),
                          .seconds = std::isnan(seconds) ? 0 : seconds,
                          .loss = number("loss")});
  }
  return told;
}

}  // namespace entrypoint::report
