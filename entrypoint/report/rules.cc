// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/rules.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace entrypoint::report {
namespace {

double percent(double share) { return 100 * share; }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// The first line of a failure's message, which a failure of the script has behind its category.
std::string_view message_of(std::string_view failure) {
  constexpr std::string_view kMark = "ErrorMessage \"";
  if (const auto mark = failure.find(kMark); mark != std::string_view::npos) {
    failure.remove_prefix(mark + kMark.size());
  }
  const std::string_view line = failure.substr(0, failure.find('\n'));
  return line.ends_with('"') ? line.substr(0, line.size() - 1) : line;
}

bool failed(const JobRecord& job, const JobNumbers& /*numbers*/, const Rule& /*rule*/,
            Finding& finding) {
  if (!job.end || job.end->exit_code == 0) return false;
  finding.cost = 2;
  finding.text = fmt::format("The job failed with exit code {}: {}", job.end->exit_code,
                             message_of(job.end->failure));
  finding.advice = "The first cause and the last lines are below.";
  return true;
}

bool uses_smp(const JobRecord& job) {
  return std::ranges::any_of(job.ranks,
                             [](const RankRecord& rank) { return !rank.facts.is_null(); });
}

bool short_job(const JobRecord& job, const JobNumbers& numbers, const Rule& rule,
               Finding& finding) {
  if (job.told) {
    finding.text = fmt::format(
        "The script does not use smp: {} tells of {} steps, of {:.4g} ms in the median, and not "
        "what they spend it on.",
        job.told->source, numbers.steps, numbers.p50_ms);
    return true;
  }
  if (numbers.steps >= static_cast<std::int64_t>(rule.threshold)) return false;
  finding.text = numbers.steps == 0
                     ? std::string(uses_smp(job) ? "No step was made."
                                                 : "No rank recorded anything: the script does not "
                                                   "use smp, or ended before smp.init.")
                     : fmt::format("Only {} steps were made: too few to say what bounds the job.",
                                   numbers.steps);
  return true;
}

/// True if ranks spend as much of their time on it as the rule says; that is its cost.
bool takes_its_share(const JobNumbers& numbers, double RankNumbers::*what, const Rule& rule,
                     Finding& finding) {
  finding.cost = numbers.mean(what);
  return finding.cost >= rule.threshold;
}

/// Time that a rank of the stage computes in a step [ms], the median of the ranks; without `but`,
/// if that is one. 0 where there is no other.
double compute_of_stage(const JobNumbers& numbers, int stage, const RankNumbers* but = nullptr) {
  std::vector<double> all;
  for (const RankNumbers& rank : numbers.ranks) {
    if (rank.stage == stage && &rank != but) all.push_back(rank.compute_ms);
  }
  return median(all);
}

/// Ranks that do the same: of one stage. What they compute in a step differs by their machines.
bool slow_rank(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule,
               Finding& finding) {
  const RankNumbers* slowest = nullptr;
  double worst = rule.threshold;
  for (const RankNumbers& rank : numbers.ranks) {
    const double usual = compute_of_stage(numbers, rank.stage, &rank);
    if (usual <= 0 || rank.compute_ms / usual < worst) continue;
    worst = rank.compute_ms / usual;
    slowest = &rank;
    finding.cost = std::min(1.0, (rank.compute_ms - usual) / std::max(rank.step_ms, 1e-9));
    finding.text = fmt::format(
        "Rank {} on {} computes {:.1f} ms in a step where ranks of the same work take {:.1f} ms: "
        "the others wait for it.",
        rank.rank, rank.host, rank.compute_ms, usual);
  }
  if (slowest == nullptr) return false;
  const bool whole_host =
      numbers.hosts > 1 && std::ranges::all_of(numbers.ranks, [&](const RankNumbers& rank) {
        return rank.host != slowest->host ||
               rank.compute_ms > compute_of_stage(numbers, rank.stage);
      });
  finding.advice = fmt::format(
      "{}Look at its clocks, its temperature and what else runs there: train --doctor on that "
      "host; or leave the host out.",
      whole_host ? "All ranks of that host are slow. " : "");
  return true;
}

bool data(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule, Finding& finding) {
  if (!takes_its_share(numbers, &RankNumbers::data, rule, finding)) return false;
  finding.text = fmt::format(
      "{:.0f} % of the time passes outside of steps and optimizers: the script prepares the next "
      "batch, evaluates, logs or saves.",
      percent(finding.cost));
  finding.advice =
      "Load data in other processes (num_workers, persistent_workers, prefetch_factor of the "
      "DataLoader, pin_memory on GPUs), from a local disk or in larger files; do not look at "
      "losses (loss.item()) in each step.";
  return true;
}

bool partition(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule,
               Finding& finding) {
  if (numbers.stages < 2) return false;
  double sum = 0;
  double most = 0;
  int busiest = 0;
  for (int stage = 0; stage < numbers.stages; ++stage) {
    const double ms = compute_of_stage(numbers, stage);
    sum += ms;
    if (ms <= most) continue;
    most = ms;
    busiest = stage;
  }
  const double mean = sum / numbers.stages;
  if (mean <= 0 || most / mean < rule.threshold) return false;
  finding.cost = std::min(1.0, (most - mean) / std::max(numbers.ranks.front().step_ms, 1e-9));
  finding.text = fmt::format(
      "Partition {} computes {:.1f} ms in a step, the partitions' mean is {:.1f} ms: the others "
      "wait for it.",
      busiest, most, mean);
  finding.advice =
      "Let the partitioner measure (auto_partition, without skip_tracing, with a memory_weight "
      "nearer to 0), or move modules off that partition with smp.set_partition.";
  return true;
}

/// The share of time that a pipeline of equal stages cannot use: it fills and drains.
double least_bubble(const JobNumbers& numbers) {
  const auto stages = static_cast<double>(numbers.stages);
  return (stages - 1) / (static_cast<double>(numbers.shape.microbatches) + stages - 1);
}

bool bubble(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule,
            Finding& finding) {
  if (numbers.stages < 2) return false;
  const double waited = numbers.mean(&RankNumbers::waited);
  const double least = least_bubble(numbers);
  if (least < rule.threshold || waited < rule.threshold) return false;
  finding.cost = std::min(least, waited);
  finding.text = fmt::format(
      "Ranks of the pipeline wait {:.0f} % of the time: with {} microbatch{} {} partitions cannot "
      "work for {:.0f} % of a step, while it fills and drains.",
      percent(waited), numbers.shape.microbatches, numbers.shape.microbatches == 1 ? "" : "es",
      numbers.stages, percent(least));
  finding.advice = fmt::format(
      "Raise microbatches, {} or more if the batch allows it, or lower pipeline_parallel_degree.",
      4 * numbers.stages);
  return true;
}

bool network(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule,
             Finding& finding) {
  const double gathered = numbers.mean(&RankNumbers::gathered);
  const double reduced = numbers.mean(&RankNumbers::reduced);
  const double exchanged = numbers.mean(&RankNumbers::exchanged);
  // The part of a pipeline's waiting that neither its shape nor its balance explains.
  double transfers = 0;
  if (numbers.stages > 1) {
    double most = 0;
    double sum = 0;
    for (int stage = 0; stage < numbers.stages; ++stage) {
      most = std::max(most, compute_of_stage(numbers, stage));
      sum += compute_of_stage(numbers, stage);
    }
    const double imbalance = 1 - sum / (numbers.stages * std::max(most, 1e-9));
    transfers = std::max(
        0.0, numbers.mean(&RankNumbers::waited) - std::max(least_bubble(numbers), imbalance));
  }
  const double all = gathered + reduced + exchanged + transfers;
  if (all < rule.threshold) return false;
  finding.cost = all;
  double bytes = 0;
  for (const RankNumbers& rank : numbers.ranks) bytes += static_cast<double>(rank.bytes);
  finding.text = fmt::format(
      "{:.0f} % of the time ranks wait for each other's bytes: parameters {:.0f} %, sums of "
      "gradients {:.0f} %, tensor parallelism {:.0f} %, messages of the pipeline {:.0f} %. A rank "
      "sends {:.1f} MB in a step.",
      percent(all), percent(gathered), percent(reduced), percent(exchanged), percent(transfers),
      1e-6 * bytes / static_cast<double>(std::max<std::size_t>(1, numbers.ranks.size())));
  finding.advice =
      numbers.hosts > 1
          ? "Measure the links with train --doctor; keep groups that move most inside a host "
            "(placement_strategy), let sums overlap the backward (overlapping_allreduce), "
            "accumulate gradients over steps, or take larger batches; with EFA look whether the "
            "log says that it is used."
          : "Use larger batches or microbatches, accumulate gradients over steps, or lower the "
            "degree that moves most.";
  return true;
}

bool overhead(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule,
              Finding& finding) {
  if (!takes_its_share(numbers, &RankNumbers::other, rule, finding)) return false;
  finding.text = fmt::format(
      "{:.0f} % of the time passes inside of steps, but in no module and no wait: in preparing "
      "microbatches and starting what runs, which small modules make dear.",
      percent(finding.cost));
  finding.advice = "Take larger microbatches: fewer of them, or a larger batch.";
  return true;
}

bool optimizer(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule,
               Finding& finding) {
  if (!takes_its_share(numbers, &RankNumbers::optimizer, rule, finding)) return false;
  finding.text = fmt::format("Optimizers take {:.0f} % of the time.", percent(finding.cost));
  finding.advice =
      "Step less often (accumulate gradients), shard the optimizer's state "
      "(shard_optimizer_state), or use a fused one (fused=True on GPUs).";
  return true;
}

bool memory_growth(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule,
                   Finding& finding) {
  if (!numbers.growth || numbers.growth->share < rule.threshold) return false;
  finding.cost = 1;
  finding.text = fmt::format(
      "The memory of rank {} grows all the time: by {:.0f} % since the first quarter of the job, "
      "about {:.0f} kB in a step.",
      numbers.growth->rank, percent(numbers.growth->share),
      1e-3 * static_cast<double>(numbers.growth->bytes_a_step));
  finding.advice =
      "Something keeps what steps make: losses or outputs collected with their graph (append "
      "loss.item() or loss.detach()), a cache without a limit.";
  return true;
}

bool overflows(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule,
               Finding& finding) {
  if (numbers.overflow_share < rule.threshold) return false;
  finding.cost = numbers.overflow_share;
  finding.text =
      fmt::format("{:.0f} % of the steps were skipped, for gradients in fp16 overflowed.",
                  percent(numbers.overflow_share));
  finding.advice =
      "Use bf16, lower the learning rate or clip gradients; with static_loss_scale take a smaller "
      "one or dynamic_loss_scale.";
  return true;
}

bool full_host(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule,
               Finding& finding) {
  if (numbers.fullest_share < rule.threshold) return false;
  finding.cost = 0.05;
  finding.text = fmt::format("{} had {:.0f} % of its memory in use: a little more ends the job.",
                             numbers.fullest_host, percent(numbers.fullest_share));
  finding.advice = "Use fewer workers of DataLoaders, smaller batches, or a larger instance.";
  return true;
}

bool uneven_steps(const JobRecord& /*job*/, const JobNumbers& numbers, const Rule& rule,
                  Finding& finding) {
  if (numbers.p50_ms <= 0 || numbers.p95_ms / numbers.p50_ms < rule.threshold) return false;
  finding.cost = 0.05;
  finding.text =
      fmt::format("Steps differ: one in twenty takes {:.1f} times as long as the usual {:.1f} ms.",
                  numbers.p95_ms / numbers.p50_ms, numbers.p50_ms);
  finding.advice =
      "Look at which steps: batches of different length, saving, evaluations, or other work on "
      "the hosts.";
  return true;
}

constexpr std::array kRules = {
    Rule{"failed", "the job ended with an error", 0, "the exit code", failed},
    Rule{"short", "fewer steps than this", 10,
         "the first two steps are left out; a mean needs some", short_job},
    Rule{"memory growth", "growth of a rank's memory since the first quarter of the job", 0.1,
         "by then a job has what it keeps; a tenth more in each of three quarters in a row is no "
         "noise",
         memory_growth},
    Rule{"overflows", "share of steps that were skipped", 0.1,
         "a dynamic loss scale that has settled skips one step in its window, by default of 1,000",
         overflows},
    Rule{"slow rank", "what a rank computes in a step, over the median of ranks of the same work",
         1.25, "a quarter is more than clocks and temperature of equal machines differ", slow_rank},
    Rule{"data", "share of time outside of steps and optimizers", 0.15,
         "a loader that keeps up costs next to nothing; above this more workers pay", data},
    Rule{"partition", "what a partition computes in a step, over the mean", 1.25,
         "a quarter above the mean costs every other partition a fifth of its time", partition},
    Rule{"bubble", "share of time that a pipeline of so few microbatches cannot use", 0.15,
         "(p - 1) / (m + p - 1), GPipe (Huang et al. 2019)", bubble},
    Rule{"network", "share of time waiting for other ranks' bytes", 0.2,
         "a fifth of the time is what a faster link or more overlap may win back", network},
    Rule{"overhead", "share of time inside steps, in no module and no wait", 0.3,
         "larger microbatches are worth trying from here on", overhead},
    Rule{"optimizer", "share of time in optimizers", 0.3,
         "one step of Adam reads and writes the "
         "state once; a forward and a backward of useful size take longer",
         optimizer},
    Rule{"full host", "share of its memory that a host had in use", 0.95,
         "the kernel kills at 100 %", full_host},
    Rule{"uneven steps", "95th percentile of step times, over the median", 1.5,
         "one step of twenty half as long again costs 2.5 %", uneven_steps},
};

}  // namespace

std::span<const Rule> rules() { return kRules; }

std::vector<Finding> judge(const JobRecord& job, const JobNumbers& numbers) {
  std::vector<Finding> findings;
  for (const Rule& rule : kRules) {
    Finding finding{.rule = rule.name};
    if (!rule.judge(job, numbers, rule, finding)) continue;
    findings.push_back(std::move(finding));
    // So few steps say nothing else.
    if (rule.name == "short") break;
  }
  std::ranges::stable_sort(findings, std::ranges::greater(), &Finding::cost);
  if (findings.empty()) {
    findings.push_back({.rule = "good",
                        .cost = 0,
                        .text = fmt::format("Nothing holds the job up: ranks compute {:.0f} % of "
                                            "the time.",
                                            percent(numbers.mean(&RankNumbers::computed))),
                        .advice = "A larger model or batch, or more hosts, may be worth trying."});
  }
  return findings;
}

}  // namespace entrypoint::report
