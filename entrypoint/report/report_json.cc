// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/report_json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "smp_runtime/schedule/simulation.h"

namespace entrypoint::report {
namespace {

using nlohmann::json;
using smp::record::Activity;
using smp::record::kActivities;

constexpr int kReportFormat = 1;
constexpr std::size_t kRanksWithSeries = 8;  // the slowest and the fastest of many
constexpr std::size_t kChartSteps = 6;
constexpr std::size_t kChartSpans = 12'000;  // of all steps and ranks
constexpr std::size_t kReadings = 200;       // of a rank's memory, of a host
constexpr std::size_t kLosses = 1000;
constexpr std::size_t kTold = 2000;    // steps
constexpr double kLongestWork = 1e15;  // [ns] of a microbatch: a chart's sum of them is a number
constexpr std::size_t kPairs = 4096;   // of ranks, in the matrix of what was sent

/// 4 digits are enough for a picture.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10, 3 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

/// Every n-th, and the last.
template <typename Reading>
std::vector<const Reading*> thinned(const std::vector<Reading>& readings, std::size_t most) {
  std::vector<const Reading*> kept;
  const std::size_t every = readings.size() / most + 1;
  for (std::size_t i = 0; i < readings.size(); i += every) kept.push_back(&readings[i]);
  if (!readings.empty() && kept.back() != &readings.back()) kept.push_back(&readings.back());
  return kept;
}

json findings_json(std::span<const Finding> findings) {
  json all = json::array();
  for (const Finding& finding : findings) {
    all.push_back({{"rule", finding.rule},
                   {"cost", rounded(finding.cost)},
                   {"text", finding.text},
                   {"advice", finding.advice}});
  }
  return all;
}

json rank_json(const RankRecord& record, const RankNumbers& numbers) {
  json kinds = json::object();
  std::int64_t peak = 0;
  for (const Memory& reading : record.memory) {
    peak = std::max(peak, reading.peak);
    for (const auto& [kind, bytes] : reading.kinds) {
      const std::int64_t before = kinds.value(kind, std::int64_t{0});
      kinds[kind] = std::max(before, bytes);
    }
  }
  return {{"rank", record.rank},
          {"host", record.host},
          {"stage", numbers.stage},
          {"tp", numbers.tensor_rank},
          {"rdp", numbers.replica},
          {"steps", record.all.steps},
          {"trained", record.all.trained},
          {"samples_a_step", numbers.samples},
          {"step_ms", rounded(numbers.step_ms)},
          {"p50_ms", rounded(1e-3 * record.periods.quantile(0.5))},
          {"p95_ms", rounded(1e-3 * record.periods.quantile(0.95))},
          {"shares",
           {{"compute", rounded(numbers.computed)},
            {"wait", rounded(numbers.waited)},
            {"gather", rounded(numbers.gathered)},
            {"reduce", rounded(numbers.reduced)},
            {"exchange", rounded(numbers.exchanged)},
            {"optimizer", rounded(numbers.optimizer)},
            {"data", rounded(numbers.data)},
            {"other", rounded(numbers.other)}}},
          {"bytes_a_step", numbers.bytes},
          {"peak_memory", peak},
          {"memory_kinds", kinds},
          {"state_by_formula", record.state_by_formula}};
}

/// Points of a rank: [step, time, mean ms of a step, the longest, computed ms].
json series_json(const RankRecord& record) {
  json points = json::array();
  for (const StepLine& line : record.lines) {
    const auto steps = static_cast<double>(line.steps);
    points.push_back({line.step, rounded(1e-6 * static_cast<double>(line.begin - record.all.begin)),
                      rounded(1e-3 * static_cast<double>(line.total) / steps),
                      rounded(1e-3 * static_cast<double>(line.longest)),
                      rounded(1e-3 * static_cast<double>(line.computed()) / steps)});
  }
  return {{"rank", record.rank}, {"points", points}};
}

/// All ranks, or of many those whose steps compute longest and shortest.
std::vector<const RankRecord*> ranks_with_series(const JobRecord& job) {
  std::vector<const RankRecord*> ranks;
  for (const RankRecord& record : job.ranks) {
    if (record.all.steps > 0) ranks.push_back(&record);
  }
  if (ranks.size() <= kRanksWithSeries) return ranks;
  std::ranges::sort(ranks, {}, [](const RankRecord* record) {
    return static_cast<double>(record->later.computed()) / static_cast<double>(record->later.steps);
  });
  constexpr auto kHalf = kRanksWithSeries / 2;
  ranks.erase(ranks.begin() + kHalf, ranks.end() - kHalf);
  std::ranges::sort(ranks, {}, &RankRecord::rank);
  return ranks;
}

/// Time of a microbatch for an activity on one rank [ns], the mean of the step's.
std::int64_t mean_work(const JobRecord& job, std::int64_t step, Activity activity,
                       std::int64_t microbatches) {
  double sum = 0;
  double ranks = 0;
  for (const RankRecord& record : job.ranks) {
    for (const StepSpans& spans : record.spans) {
      if (spans.step != step) continue;
      ++ranks;
      for (const Span& span : spans.spans) {
        if (span.activity == static_cast<int>(activity)) {
          sum += static_cast<double>(span.duration);
        }
      }
    }
  }
  const double mean = 1000 * sum / std::max(1.0, ranks * static_cast<double>(microbatches));
  return static_cast<std::int64_t>(std::clamp(mean, 0.0, kLongestWork));
}

/// A step's work in equal partitions, in the job's schedule and without any transfer; rows:
/// [partition, activity, begin us, duration us, microbatch]. Null where there is no pipeline, or
/// too much to draw.
json ideal_json(const JobRecord& job, const JobNumbers& numbers, std::int64_t step) {
  const auto work = [&](Activity activity) {
    return mean_work(job, step, activity, numbers.shape.microbatches);
  };
  const auto spans = static_cast<std::size_t>(3 * numbers.stages * numbers.shape.microbatches);
  const std::int64_t forward = work(Activity::kForward);
  if (numbers.stages < 2 || forward == 0 || spans > kChartSpans / 2) return nullptr;
  auto runs =
      smp::schedule::runs_of_equal_stages(numbers.stages, forward, work(Activity::kBackward));
  for (smp::schedule::Run& run : runs) {
    if (run.phase == smp::schedule::Phase::kBackward) run.deferred = work(Activity::kDeferred);
  }
  const auto ideal = smp::schedule::simulate_schedule(runs, numbers.shape, numbers.stages);
  json rows = json::array();
  for (const auto& begun : ideal.begun) {
    for (const auto& [microbatch, number, begin, is_deferred] : begun) {
      const smp::schedule::Run& run = runs[number];
      const bool is_forward = run.phase == smp::schedule::Phase::kForward;
      const auto activity = is_deferred  ? Activity::kDeferred
                            : is_forward ? Activity::kForward
                                         : Activity::kBackward;
      const std::int64_t time = is_deferred ? run.deferred : run.work;
      rows.push_back({run.rank, static_cast<int>(activity), begin / 1000, time / 1000, microbatch});
    }
  }
  return {{"length", ideal.length / 1000}, {"waited", rounded(1 - ideal.use())}, {"rows", rows}};
}

/// Steps whose spans are there of most ranks, spread over the job; rows: [rank, activity, begin us
/// since the first rank's begin, duration us, microbatch, name's number].
json chart_json(const JobRecord& job, const JobNumbers& numbers) {
  std::map<std::int64_t, std::size_t> count;
  for (const RankRecord& record : job.ranks) {
    for (const StepSpans& spans : record.spans) count[spans.step] += spans.spans.size();
  }
  std::vector<std::int64_t> steps;
  for (const auto& [step, spans] : count) {
    if (spans <= kChartSpans / 2) steps.push_back(step);
  }
  while (steps.size() > kChartSteps) {  // the first ones warm up, the last ones are alike
    steps.erase(steps.begin() + static_cast<long>(steps.size() / 2));
  }
  json chart = json::array();
  std::size_t spans_left = kChartSpans;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (count[*step] > spans_left) continue;
    spans_left -= count[*step];
    std::int64_t begin = INT64_MAX;
    for (const RankRecord& record : job.ranks) {
      for (const StepSpans& spans : record.spans) {
        if (spans.step == *step) begin = std::min(begin, spans.begin);
      }
    }
    json rows = json::array();
    std::vector<std::string> names;
    std::map<std::string, std::size_t> number_of;
    for (const RankRecord& record : job.ranks) {
      for (const StepSpans& spans : record.spans) {
        if (spans.step != *step) continue;
        for (const Span& span : spans.spans) {
          const auto [found, is_new] = number_of.try_emplace(span.name, names.size());
          if (is_new) names.push_back(span.name);
          rows.push_back({record.rank, span.activity, spans.begin - begin + span.begin,
                          span.duration, span.microbatch, found->second});
        }
      }
    }
    chart.push_back({{"step", *step},
                     {"names", names},
                     {"rows", rows},
                     {"ideal", ideal_json(job, numbers, *step)}});
  }
  std::reverse(chart.begin(), chart.end());
  return chart;
}

json traffic_json(const JobRecord& job) {
  json pairs = json::array();
  for (const RankRecord& record : job.ranks) {
    for (const auto& [rank, traffic] : record.sent) {
      if (pairs.size() >= kPairs) return pairs;
      const RankRecord* other = job.rank(rank);
      const bool same_host =
          other != nullptr && other->first_rank == record.first_rank && other->host == record.host;
      pairs.push_back({record.rank, rank, traffic.bytes, traffic.messages, same_host});
    }
  }
  return pairs;
}

/// As series_json() of a rank, by what the script tells.
json told_series_json(const ToldSteps& told) {
  json points = json::array();
  for (const ToldStep* step : thinned(told.steps, kTold)) {
    if (step->seconds <= 0) continue;
    const double milliseconds = rounded(1e3 * step->seconds);
    points.push_back(
        {step->step, rounded(step->time - told.steps.front().time), milliseconds, milliseconds, 0});
  }
  return {{"name", told.source}, {"points", points}};
}

json losses_json(const JobRecord& job) {
  json points = json::array();
  if (job.told) {
    for (const ToldStep* step : thinned(job.told->steps, kLosses)) {
      if (!std::isnan(step->loss)) points.push_back({step->step, rounded(step->loss), true});
    }
    return points;
  }
  if (job.ranks.empty()) return points;
  for (const Loss* loss : thinned(job.ranks.front().losses, kLosses)) {
    points.push_back({loss->step, std::isfinite(loss->value) ? json(rounded(loss->value)) : json(),
                      loss->training});
  }
  return points;
}

json memory_json(const JobRecord& job) {
  json all = json::array();
  for (const RankRecord* record : ranks_with_series(job)) {
    json points = json::array();
    for (const Memory* reading : thinned(record->memory, kReadings)) {
      points.push_back(
          {rounded(reading->time - 1e-6 * static_cast<double>(record->all.begin)), reading->peak});
    }
    all.push_back({{"rank", record->rank}, {"points", points}});
  }
  return all;
}

json hosts_json(const JobRecord& job) {
  json all = json::array();
  for (const HostRecord& host : job.hosts) {
    json points = json::array();
    const auto kept = thinned(host.samples, kReadings);
    for (std::size_t i = 1; i < kept.size(); ++i) {
      const HostSample& sample = *kept[i];
      const double seconds = sample.time - kept[i - 1]->time;
      if (seconds <= 0) continue;
      const auto rate = [&](std::int64_t HostSample::*what) {
        return rounded(static_cast<double>(sample.*what - kept[i - 1]->*what) / seconds);
      };
      points.push_back({rounded(sample.time - kept.front()->time), rounded(sample.cpu),
                        sample.memory, rate(&HostSample::received), rate(&HostSample::sent)});
    }
    all.push_back({{"host", host.name},
                   {"instance_type", host.instance_type},
                   {"processors", host.processors},
                   {"memory_total", host.samples.empty() ? 0 : host.samples.back().memory_total},
                   {"points", points}});
  }
  return all;
}

json events_json(const JobRecord& job) {
  json all = json::array();
  for (const RankRecord& record : job.ranks) {
    for (const Event& event : record.events) {
      all.push_back({rounded(event.time - 1e-6 * static_cast<double>(record.all.begin)),
                     record.rank, event.kind, event.text});
    }
    if (!all.empty()) return all;  // of the first rank that has some: others have the same
  }
  return all;
}

json figures_json(const StepFigures& step) {
  return {{"step_ms", rounded(step.step_ms)}, {"use", rounded(step.use)}, {"bytes", step.bytes}};
}

json card_json(const JobRecord& job, const JobNumbers& numbers) {
  std::set<std::string> hosts;
  for (const RankRecord& record : job.ranks) hosts.insert(record.host);
  for (const HostRecord& host : job.hosts) hosts.insert(host.name);
  json card{{"hosts", hosts},
            {"ranks", job.ranks.size()},
            {"steps", numbers.steps},
            {"stages", numbers.stages},
            {"microbatches", numbers.shape.microbatches},
            {"p50_ms", rounded(numbers.p50_ms)},
            {"p95_ms", rounded(numbers.p95_ms)},
            {"samples_per_second", rounded(numbers.samples_per_second)}};
  if (!job.ranks.empty()) {
    card["facts"] = job.ranks.front().facts;
    card["begin"] = 1e-6 * static_cast<double>(job.ranks.front().all.begin);
    card["partition"] = job.ranks.front().partition;
  }
  if (numbers.predicted) {
    card["predicted"] = figures_json(*numbers.predicted);
    card["measured"] = figures_json(numbers.measured);
  }
  if (job.suggested) card["suggested"] = suggested_json(job, numbers);
  return card;
}

}  // namespace

json report_json(const JobRecord& job, const JobNumbers& numbers,
                 std::span<const Finding> findings) {
  json ranks = json::array();
  for (const RankNumbers& rank : numbers.ranks) {
    ranks.push_back(rank_json(*job.rank(rank.rank), rank));
  }
  json series = json::array();
  for (const RankRecord* record : ranks_with_series(job)) series.push_back(series_json(*record));
  if (job.told) series.push_back(told_series_json(*job.told));
  std::vector<std::string> activities;
  for (std::size_t i = 0; i < kActivities; ++i) {
    activities.emplace_back(name_of(static_cast<smp::record::Activity>(i)));
  }
  json report{{"format", kReportFormat},
              {"findings", findings_json(findings)},
              {"problems", job.problems},
              {"card", card_json(job, numbers)},
              {"ranks", ranks},
              {"series", series},
              {"losses", losses_json(job)},
              {"memory", memory_json(job)},
              {"events", events_json(job)},
              {"hosts", hosts_json(job)},
              {"activities", activities},
              {"chart", chart_json(job, numbers)},
              {"traffic", traffic_json(job)}};
  if (job.end) {
    report["end"] = {{"exit_code", job.end->exit_code},
                     {"failure", job.end->failure},
                     {"last_lines", job.end->last_lines}};
  }
  return report;
}

}  // namespace entrypoint::report
