// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/candidates.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::planner {
namespace {

using topology::Setting;
using topology::Settings;

constexpr std::array<std::string_view, 14> kChosen{"partitions",
                                                   "pipeline_parallel_degree",
                                                   "tensor_parallel_degree",
                                                   "sharded_data_parallel_degree",
                                                   "hybrid_shard_degree",
                                                   "microbatches",
                                                   "active_microbatches",
                                                   "pipeline",
                                                   "pipeline_memory",
                                                   "ddp",
                                                   "shard_optimizer_state",
                                                   "offload_activations",
                                                   "fp16",
                                                   "bf16"};

/// More of them in a step are not tried: a pipeline is full long before.
constexpr std::int64_t kMostMicrobatches = 512;

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t one = 1; one <= number; ++one) {
    if (number % one == 0) found.push_back(one);
  }
  return found;
}

struct Schedule {
  const char* pipeline = nullptr;  ///< null: the default
  std::int64_t memory = 1;
};
/// Not "simple", which keeps more than the default and is no faster.
constexpr std::array kSchedules{Schedule{}, Schedule{.pipeline = "zero_bubble"},
                                Schedule{.pipeline = "zero_bubble", .memory = 2}};

class Enumeration {
 public:
  Enumeration(const ModelProfile& model, const Machines& machines, const SearchSpace& space)
      : model_(model), machines_(machines), space_(space) {}

  std::vector<Candidate> run() {
    std::vector<std::int64_t> tensor_degrees{1};
    tensor_degrees.insert(tensor_degrees.end(), model_.tensor_degrees.begin(),
                          model_.tensor_degrees.end());
    for (const std::int64_t pp : divisors(machines_.ranks())) {
      if (pp > static_cast<std::int64_t>(model_.modules.size())) break;
      for (const std::int64_t tp : tensor_degrees) {
        if (machines_.ranks_a_host % tp != 0 || machines_.ranks() % (pp * tp) != 0) continue;
        try_degrees(pp, tp);
      }
    }
    return std::move(found_);
  }

 private:
  void try_degrees(std::int64_t pp, std::int64_t tp) {
    const std::int64_t replicas = machines_.ranks() / (pp * tp);
    for (const std::int64_t sdp : divisors(replicas)) {
      for (const std::int64_t microbatches : divisors(model_.batch)) {
        if (space_.least_memory && microbatches < model_.batch) continue;
        if (microbatches > kMostMicrobatches) break;
        for (const Schedule& schedule : kSchedules) {
          // They differ in what a stage does between two microbatches.
          if ((pp == 1 || microbatches == 1) && schedule.pipeline != nullptr) break;
          Settings settings = space_.fixed;
          const auto set = [&](const char* name, topology::Value value) {
            settings.entries.push_back({name, std::move(value)});
          };
          if (pp > 1) set("pipeline_parallel_degree", pp);
          if (tp > 1) set("tensor_parallel_degree", tp);
          if (sdp > 1) set("sharded_data_parallel_degree", sdp);
          if (microbatches > 1) set("microbatches", microbatches);
          if (schedule.pipeline != nullptr) set("pipeline", std::string(schedule.pipeline));
          if (schedule.memory != 1) set("pipeline_memory", schedule.memory);
          if (machines_.ranks() > 1) set("ddp", true);
          try_states(settings);
        }
      }
    }
  }

  void try_states(const Settings& degrees) {
    for (const bool is_sharded : {false, true}) {
      for (const std::string& format : space_.formats) {
        Settings settings = degrees;
        if (is_sharded) settings.entries.push_back({"shard_optimizer_state", true});
        if (format != "fp32") settings.entries.push_back({format, true});
        try_recomputations(settings);
      }
    }
  }

  void try_recomputations(const Settings& settings) {
    const int count = static_cast<int>(model_.recomputations.size());
    for (int number = space_.least_memory ? count - 1 : 0; number < count; ++number) {
      add(settings, number);
      const Recomputation& how = model_.recomputations[static_cast<std::size_t>(number)];
      if (!machines_.device.is_gpu || !how.recomputes()) continue;
      Settings offloaded = settings;
      offloaded.entries.push_back({"offload_activations", true});
      add(offloaded, number);
    }
  }

  void add(const Settings& settings, int recomputation) {
    try {
      found_.push_back(make_candidate(model_, machines_, settings, recomputation));
    } catch (const ConfigError&) {  // the rules refuse it
    }
  }

  const ModelProfile& model_;
  const Machines& machines_;
  const SearchSpace& space_;
  std::vector<Candidate> found_;
};

}  // namespace

const Recomputation& recomputation_of(const ModelProfile& model, const Candidate& candidate) {
  return model.recomputations.at(static_cast<std::size_t>(candidate.recomputation));
}

bool is_chosen(std::string_view key) { return std::ranges::find(kChosen, key) != kChosen.end(); }

std::vector<Candidate> make_candidates(const ModelProfile& model, const Machines& machines,
                                       const SearchSpace& space) {
  return Enumeration(model, machines, space).run();
}

Candidate make_candidate(const ModelProfile& model, const Machines& machines,
                         const topology::Settings& settings, int recomputation) {
  Candidate candidate{.config = topology::make_parallel_config(settings),
                      .recomputation = recomputation,
                      .settings = settings};
  const topology::ParallelConfig& config = candidate.config;
  topology::validate_world(config, machines.ranks(), machines.ranks_a_host);
  if (const auto refusal = topology::refusal_to_wrap(config, machines.ranks())) {
    throw ConfigError("{}", *refusal);
  }
  if (model.batch % config.microbatches != 0) {
    throw ConfigError("microbatches={} does not divide the {} samples that the script gives a step",
                      config.microbatches, model.batch);
  }
  const std::int64_t tp = config.tensor_parallel_degree;
  if (tp > 1 && std::ranges::find(model.tensor_degrees, tp) == model.tensor_degrees.end()) {
    throw ConfigError(
        "tensor_parallel_degree={} splits nothing: the script marks no module that so many ranks "
        "divide; see smp.set_tensor_parallelism",
        tp);
  }
  return candidate;
}

}  // namespace smp::planner
