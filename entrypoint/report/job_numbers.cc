// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/job_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "entrypoint/report/durations.h"

namespace entrypoint::report {
namespace {

using smp::record::Activity;

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double milliseconds_a_step(std::int64_t micros, std::int64_t steps) {
  return 1e-3 * share(micros, steps);
}

/// Place of a rank in its group of a kind, as the job's facts have it: "PP", its pipeline.
int place_in(const RankRecord& record, const char* kind) {
  if (!record.facts.is_object()) return 0;
  const auto groups = record.facts.find("groups");
  if (groups == record.facts.end() || !groups->contains(kind)) return 0;
  const auto ranks = groups->at(kind).get<std::vector<int>>();
  const auto own = std::ranges::find(ranks, record.rank);
  return own == ranks.end() ? 0 : static_cast<int>(own - ranks.begin());
}

template <typename T>
T setting(const JobRecord& job, const char* name, T otherwise) {
  for (const RankRecord& rank : job.ranks) {
    if (!rank.facts.is_object() || !rank.facts.contains("settings")) continue;
    const auto& settings = rank.facts.at("settings");
    if (settings.contains(name) && !settings.at(name).is_null()) return settings.at(name);
  }
  return otherwise;
}

smp::schedule::ScheduleShape shape_of(const JobRecord& job) {
  const auto microbatches = setting<std::int64_t>(job, "microbatches", 1);
  return {.microbatches = microbatches,
          .active_microbatches = setting(job, "active_microbatches", microbatches),
          .schedule =
              smp::schedule::parse_schedule(setting<std::string>(job, "pipeline", "interleaved")),
          .memory = setting(job, "pipeline_memory", 1.0)};
}

RankNumbers numbers_of_rank(const RankRecord& record) {
  const StepLine& line = record.later;
  const auto of = [&](Activity activity) { return share(line.spent_on(activity), line.total); };
  RankNumbers numbers{.rank = record.rank,
                      .host = record.host,
                      .stage = place_in(record, "PP"),
                      .tensor_rank = place_in(record, "TP"),
                      .replica = place_in(record, "RDP"),
                      .computed = share(line.computed(), line.total),
                      .waited = of(Activity::kWait),
                      .gathered = of(Activity::kGather),
                      .reduced = of(Activity::kReduce),
                      .exchanged = of(Activity::kExchange),
                      .optimizer = of(Activity::kOptimizer),
                      .data = of(Activity::kData),
                      .compute_ms = milliseconds_a_step(line.computed(), line.steps),
                      .step_ms = milliseconds_a_step(line.total, line.steps),
                      .bytes = line.steps == 0 ? 0 : line.bytes / line.steps,
                      .samples = line.steps == 0 ? 0 : line.samples / line.steps};
  numbers.other =
      std::max(0.0, 1 - numbers.computed - numbers.waited - numbers.gathered - numbers.reduced -
                        numbers.exchanged - numbers.optimizer - numbers.data);
  return numbers;
}

std::optional<StepFigures> predicted_step(const JobRecord& job) {
  if (job.ranks.empty() || !job.ranks.front().partition.is_object()) return std::nullopt;
  const auto& partition = job.ranks.front().partition;
  const auto figures = partition.find("predicted");
  if (figures == partition.end()) return std::nullopt;
  const auto number = [&](const char* name) {
    const auto found = figures->find(name);
    return found != figures->end() && found->is_number() ? found->get<double>() : 0;
  };
  constexpr double kMostBytes = 1e18;
  return StepFigures{
      .step_ms = number("step_ms"),
      .use = number("use"),
      .bytes = static_cast<std::int64_t>(std::clamp(number("bytes"), 0.0, kMostBytes))};
}

StepFigures measured_step(const JobRecord& job) {
  constexpr std::array kKinds{"parameters", "persistent", "gradients", "optimizer", "activations"};
  StepFigures figures;
  double ranks = 0;
  for (const RankRecord& record : job.ranks) {
    if (record.all.steps == 0) continue;
    if (ranks++ == 0) {
      figures.step_ms = milliseconds_a_step(record.later.inside, record.later.steps);
    }
    figures.use += share(record.later.computed(), record.later.inside);
    figures.bytes = std::max(figures.bytes, most_bytes(record, kKinds));
  }
  figures.use /= std::max(1.0, ranks);
  return figures;
}

/// Growth of a rank's memory once it trained: a leak grows through the whole job.
std::optional<JobNumbers::Growth> growth_of(const RankRecord& record) {
  constexpr std::size_t kFewReadings = 8;
  const auto& readings = record.memory;
  if (readings.size() < kFewReadings || record.all.steps == 0) return std::nullopt;
  const auto at = [&](double part) {
    return readings[static_cast<std::size_t>(part * static_cast<double>(readings.size() - 1))].peak;
  };
  // A peak that only grew at the begin, or in one jump, is no leak.
  const std::int64_t second = at(0.5) - at(0.25);
  const std::int64_t third = at(0.75) - at(0.5);
  const std::int64_t last = at(1) - at(0.75);
  const std::int64_t least = std::min({second, third, last});
  if (least <= 0) return std::nullopt;
  return JobNumbers::Growth{.rank = record.rank,
                            .share = share(at(1) - at(0.25), at(0.25)),
                            .bytes_a_step = 4 * (at(1) - at(0.25)) / 3 / record.all.steps};
}

}  // namespace

double JobNumbers::mean(double RankNumbers::*what) const {
  if (ranks.empty()) return 0;
  double sum = 0;
  for (const RankNumbers& rank : ranks) sum += rank.*what;
  return sum / static_cast<double>(ranks.size());
}

std::int64_t most_bytes(const RankRecord& record, std::span<const char* const> kinds) {
  std::int64_t bytes = 0;
  for (const char* kind : kinds) {
    std::int64_t most = 0;
    for (const Memory& reading : record.memory) {
      const auto found = reading.kinds.find(kind);
      if (found != reading.kinds.end()) most = std::max(most, found->second);
    }
    bytes += most;
  }
  return bytes;
}

JobNumbers numbers_of(const JobRecord& job) {
  JobNumbers numbers{
      .shape = shape_of(job), .predicted = predicted_step(job), .measured = measured_step(job)};
  std::set<std::string> hosts;
  double samples = 0;
  for (const RankRecord& record : job.ranks) {
    hosts.insert(record.host);
    if (record.all.steps == 0) continue;
    numbers.ranks.push_back(numbers_of_rank(record));
    const RankNumbers& rank = numbers.ranks.back();
    numbers.stages = std::max(numbers.stages, rank.stage + 1);
    if (rank.stage == 0) samples += static_cast<double>(record.later.samples);
    if (const auto growth = growth_of(record)) {
      if (!numbers.growth || growth->share > numbers.growth->share) numbers.growth = growth;
    }
    if (numbers.steps != 0) continue;
    numbers.steps = record.all.steps;
    numbers.p50_ms = 1e-3 * record.periods.quantile(0.5);
    numbers.p95_ms = 1e-3 * record.periods.quantile(0.95);
    const auto overflows = std::ranges::count(record.events, "overflow", &Event::kind);
    numbers.overflow_share = share(overflows, record.all.trained);
  }
  if (!job.ranks.empty() && job.ranks.front().later.total > 0) {
    // With tensor parallelism ranks of a group have one batch, or each its own: the settings tell.
    numbers.samples_per_second = 1e6 * samples / static_cast<double>(job.ranks.front().later.total);
  }
  if (job.told) {
    Durations durations;
    for (const ToldStep& step : job.told->steps) {
      if (step.seconds > 0) durations.add(std::llround(1e6 * step.seconds));
    }
    numbers.steps = job.told->steps.back().step;
    numbers.p50_ms = 1e-3 * durations.quantile(0.5);
    numbers.p95_ms = 1e-3 * durations.quantile(0.95);
  }
  numbers.hosts = std::max<int>(1, static_cast<int>(hosts.size()));
  for (const HostRecord& host : job.hosts) {
    for (const HostSample& sample : host.samples) {
      const double used = share(sample.memory, sample.memory_total);
      if (used <= numbers.fullest_share) continue;
      numbers.fullest_share = used;
      numbers.fullest_host = host.name;
    }
  }
  return numbers;
}

}  // namespace entrypoint::report
