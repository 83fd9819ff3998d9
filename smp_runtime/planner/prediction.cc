// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/prediction.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "smp_runtime/partition/call_program.h"
#include "smp_runtime/partition/job_partition.h"
#include "smp_runtime/planner/cost_tree.h"
#include "smp_runtime/planner/exchange_costs.h"
#include "smp_runtime/topology/mesh.h"

namespace smp::planner {
namespace {

using topology::Group;

constexpr double kFirstBucketShare = 0.1;  // of an exchange that nothing can hide: its begin
constexpr double kElementBytes = 4;
/// Operations that take the interpreter and its threads as long as a message that a rank takes up,
/// forward or backward.
constexpr double kCallOperations = 20;
constexpr double kRounding = 1 + 1e-9;  // of sums of the same times in another order
/// Passes over gradients, masters and moments: torch's optimizers run an operation after the other.
constexpr double kUpdatePasses = 2;
constexpr double kUpdateOperations = 8;  ///< for each parameter

/// Time that an exchange adds to work beside which it may run.
double exposed(double exchange, double work, bool hides) {
  if (!hides) return exchange;
  return std::max(exchange * kFirstBucketShare, exchange - work);
}

class StepPrediction {
 public:
  StepPrediction(const ModelProfile& model, const Machines& machines, const Candidate& candidate)
      : model_(model),
        machines_(machines),
        candidate_(candidate),
        config_(candidate.config),
        mesh_(topology::Mesh::make(config_, machines.ranks())),
        costs_(make_cost_tree(model, machines, candidate)),
        stages_(static_cast<int>(config_.pipeline_parallel_degree)),
        microbatches_(static_cast<double>(config_.microbatches)) {}

  Prediction run() {
    place();
    Prediction result{
        .memory = fullest_needs(model_, machines_, candidate_, costs_.tree, stage_of_),
        .samples = samples_of_step(model_, machines_, candidate_)};
    const double usable = usable_bytes(machines_);
    result.fits = usable == 0 || result.memory.total() <= usable;
    StepTimes& times = result.times;
    compute(times);
    share_states(times);
    times.updating = updating_seconds();
    times.recomputing += offload_seconds();
    result.busy_share = busy_share_;
    result.sent_bytes = sent_bytes_;
    result.bound = bound_of(times);
    return result;
  }

 private:
  void place() {
    stage_of_.assign(static_cast<std::size_t>(costs_.tree.size()), 0);
    if (stages_ == 1) return;
    const Recomputation& how = recomputation_of(model_, candidate_);
    const partition::AutoDecision decision = partition::decide_job(
        costs_.tree, config_,
        {.elements = model_.elements(),
         .parameter_bytes = model_.parameter_bytes(),
         .replicas = mesh_.size(Group::kRdp),
         .on_gpus = machines_.device.is_gpu,
         .device_bytes = machines_.device.is_gpu ? machines_.device.memory_bytes : 0,
         .recompute_bytes = how.once_bytes / config_.microbatches});
    stage_of_ = decision.chosen.device_of_node;
  }

  /// Forwards, backwards and what stages wait for each other.
  void compute(StepTimes& times) {
    const double work = microbatch_seconds(model_, machines_, candidate_);  // of all stages
    const double plain = costs_.plain_seconds;
    const double exchanging = exchange_seconds();
    const double all = work + exchanging;
    double step = microbatches_ * all;
    if (stages_ > 1) step = pipeline_seconds(all / work);
    // Processors that ranks of a host share are busy with all that these have to do.
    const double busy = microbatches_ * all / stages_;
    const double least =
        machines_.processors == 0 ? 0 : busy * machines_.ranks_a_host / machines_.processors;
    step = std::max(step, least);
    busy_share_ = std::min(1.0, std::max(busy, least) / step);
    const double worked = step * busy_share_;
    times.waiting = step - worked;
    times.exchanging = worked * exchanging / all;
    times.recomputing = worked * std::max(0.0, work - plain * kRounding) / all;
    times.computing = worked - times.exchanging - times.recomputing;
    last_backward_ = worked / microbatches_ * kBackwards / (1 + kBackwards);
    work_ = worked;
  }

  /// Of a step, where each stage's work takes `longer` than the tree has it.
  double pipeline_seconds(double longer) {
    partition::CallProgram program = partition::make_call_program(costs_.tree, stage_of_);
    const double call_ns = kCallOperations * machines_.device.operation_seconds * 1e9;
    for (partition::Run& run : program.runs) {
      run.work_ns = static_cast<std::int64_t>(static_cast<double>(run.work_ns) * longer) +
                    static_cast<std::int64_t>(static_cast<double>(run.messages) * call_ns);
      run.recompute_ns = static_cast<std::int64_t>(static_cast<double>(run.recompute_ns) * longer);
    }
    const partition::StepModel step =
        pipeline_model(mesh_, machines_, partition::shape_of(config_));
    const schedule::Simulation simulated = partition::predict_step(program, stages_, step);
    const auto done = static_cast<double>(partition::simulated_microbatches(program, step.shape));
    const double slowest = static_cast<double>(std::ranges::max(simulated.busy)) / done;
    const double length =
        1e-9 * (static_cast<double>(simulated.length) + (microbatches_ - done) * slowest);
    const double link = slowest_link_seconds(program, step) * microbatches_;
    sent_bytes_ += static_cast<double>(program.bytes()) * microbatches_ / stages_;
    return std::max(length, link);
  }

  /// Of tensor ranks, forward, backward and where they recompute, for one microbatch of all stages.
  double exchange_seconds() {
    if (config_.tensor_parallel_degree == 1 || costs_.exchanges == 0) return 0;
    const Spread spread = spread_of(mesh_, Group::kTp, machines_);
    const double each = costs_.exchanged_bytes / static_cast<double>(costs_.exchanges);
    const double once =
        static_cast<double>(costs_.exchanges) * gather_seconds(machines_, spread, each, true);
    sent_bytes_ += 2 * costs_.exchanged_bytes * microbatches_ / stages_;
    return 2 * once;
  }

  /// Activations to memory of the host and back, beside forward and backward.
  [[nodiscard]] double offload_seconds() const {
    if (!config_.offload_activations || machines_.device.host_bytes_per_second == 0) return 0;
    const Recomputation& how = recomputation_of(model_, candidate_);
    double bytes = 0;
    for (const std::int64_t kept : how.kept_bytes) bytes += static_cast<double>(kept);
    const double each = bytes * activation_share(model_, candidate_) / stages_ /
                        machines_.device.host_bytes_per_second;
    return exposed(2 * each, work_, true);
  }

  struct Elements {
    double split = 0;  ///< on this rank, of the fullest stage
    double whole = 0;
    double on_demand = 0;  ///< gathered for use
    double count = 0;      ///< parameters
    double units = 0;      ///< of which each is gathered by itself

    [[nodiscard]] double all() const { return split + whole; }
  };

  [[nodiscard]] Elements fullest_stage() const {
    std::vector<Elements> stages(static_cast<std::size_t>(stages_));
    std::vector<bool> seen(model_.parameters.size(), false);
    for (int node = 0; node < costs_.tree.size(); ++node) {
      const auto stage = static_cast<std::size_t>(stage_of_[static_cast<std::size_t>(node)]);
      for (const int number : costs_.tree.module(node).parameters) {
        const auto at = static_cast<std::size_t>(number);
        if (seen[at]) continue;
        seen[at] = true;
        const ProfiledParameter& parameter = model_.parameters[at];
        if (!parameter.trains) continue;
        const auto elements = static_cast<double>(parameter.elements);
        if (parameter.is_split) {
          stages[stage].split += elements / static_cast<double>(config_.tensor_parallel_degree);
        } else {
          stages[stage].whole += elements;
        }
        if (parameter.elements >= config_.sdp_param_persistence_threshold) {
          stages[stage].on_demand += elements;
        }
        ++stages[stage].count;
      }
    }
    Elements fullest =
        *std::ranges::max_element(stages, {}, [](const Elements& e) { return e.all(); });
    fullest.units = units_of(fullest);
    return fullest;
  }

  /// A unit is a block of the model, which the blocks' way of recomputing has as a region; what is
  /// in no block is about one more. Without blocks each parameter is taken for one.
  [[nodiscard]] double units_of(const Elements& stage) const {
    const auto blocks = std::ranges::find(model_.recomputations, "blocks", &Recomputation::name);
    if (blocks == model_.recomputations.end()) return stage.count;
    double regions = 1;
    for (std::size_t number = 0; number < model_.modules.size(); ++number) {
      const int parent = model_.modules[number].parent;
      const bool is_inner = parent >= 0 && blocks->recomputed[static_cast<std::size_t>(parent)];
      if (blocks->recomputed[number] && !is_inner) ++regions;
    }
    return std::min(regions, stage.count);
  }

  [[nodiscard]] double computing_bytes() const {
    return candidate_.is_narrow() ? 2 : kElementBytes;
  }

  /// True if processors have time for an exchange while ranks compute.
  [[nodiscard]] bool hides(const Spread& spread) const {
    return machines_.processors == 0 || spread.hosts > 1 ||
           machines_.processors >= 2 * machines_.ranks_a_host;
  }

  /// Gathers and sums of parameters and gradients among replicas.
  void share_states(StepTimes& times) {
    stage_ = fullest_stage();
    const int sharded = static_cast<int>(config_.sharded_data_parallel_degree);
    if (sharded > 1) {
      share_on_demand(sharded, times);
      return;
    }
    const Spread replicas = spread_of(mesh_, Group::kRdp, machines_);
    const Spread all = spread_of(mesh_, Group::kDp, machines_);
    if (all.ranks < 2) return;
    const bool by_store = config_.shard_optimizer_state || candidate_.is_narrow();
    const bool by_hosts = by_store || config_.ddp_dist_backend == "smddp";
    const double bytes = stage_.all() * kElementBytes;
    const double reduce =
        all_reduce_seconds(machines_, all, stage_.whole * kElementBytes, by_hosts) +
        all_reduce_seconds(machines_, replicas, stage_.split * kElementBytes, by_hosts);
    sent_bytes_ += 2 * bytes * (all.ranks - 1) / all.ranks;
    if (!config_.shard_optimizer_state) {
      const bool overlaps = config_.overlapping_allreduce && !config_.deterministic_server;
      times.reducing = exposed(reduce, last_backward_, overlaps && hides(all));
      return;
    }
    // Gradients to their owners, and what these make of them back, with the step's end before.
    times.reducing = reduce / 2;
    times.gathering = gather_seconds(machines_, all, stage_.all() * computing_bytes(), by_hosts);
  }

  void share_on_demand(int degree, StepTimes& times) {
    const Spread shards = shard_spread_of(mesh_, degree, machines_);
    const bool by_hosts = config_.sdp_hierarchical_allgather;
    const double persistent = stage_.all() - stage_.on_demand;
    const double gather = gather_seconds(machines_, shards, stage_.on_demand * computing_bytes(),
                                         by_hosts, stage_.units);
    const double published =
        gather_seconds(machines_, shards, persistent * computing_bytes(), by_hosts);
    const double reduce =
        gather_seconds(machines_, shards, stage_.all() * kElementBytes, by_hosts, stage_.units);
    // In the forward and in the backward, whose turn finds the last units still there.
    const double gathers = 2 * microbatches_ * gather;
    const double reductions = microbatches_ * reduce;
    double replicas = 0;
    const Spread all = spread_of(mesh_, Group::kRdp, machines_);
    if (all.ranks > degree) {
      const int others = all.ranks / degree;
      const Spread spread{.ranks = others,
                          .hosts = std::max(1, std::min(all.hosts / shards.hosts, others)),
                          .groups_a_host = std::min(degree, machines_.ranks_a_host)};
      replicas = all_reduce_seconds(machines_, spread, stage_.all() * kElementBytes / degree, true);
    }
    const bool hidden = hides(shards);
    // Each parameter's gradient is handled by itself, and each unit's gathers.
    const double started = 3 * microbatches_ * stage_.count * machines_.device.operation_seconds;
    times.gathering = exposed(gathers, work_ / 2, hidden) + published + started;
    times.reducing =
        exposed(reductions, work_ / 2, hidden) + exposed(replicas, last_backward_, hidden);
    const double share = static_cast<double>(degree - 1) / degree;
    sent_bytes_ += share * microbatches_ *
                   (2 * stage_.on_demand * computing_bytes() + stage_.all() * kElementBytes);
  }

  [[nodiscard]] double updating_seconds() const {
    const bool shares = config_.shard_optimizer_state || config_.sharded_data_parallel_degree > 1;
    const double owners = config_.shard_optimizer_state
                              ? mesh_.size(Group::kRdp)
                              : static_cast<double>(config_.sharded_data_parallel_degree);
    const double elements = stage_.all() / owners;
    const double bytes = elements * kElementBytes * (3 + 2 * model_.moments) * kUpdatePasses;
    const double busy =
        machines_.processors == 0
            ? 1
            : std::max(1.0, static_cast<double>(machines_.ranks_a_host) / machines_.processors);
    // On GPUs torch's optimizers take many tensors in one operation, as flat masters are one.
    const bool is_one = shares || machines_.device.is_gpu;
    const double tensors = is_one ? 1 : stage_.count;
    const double started = tensors * kUpdateOperations * machines_.device.operation_seconds;
    return busy * (bytes / machines_.device.bytes_per_second + started);
  }

  static std::string_view bound_of(const StepTimes& times) {
    const std::array parts{std::pair(times.computing, "computing"),
                           std::pair(times.recomputing, "recomputing"),
                           std::pair(times.waiting, "waiting for other stages"),
                           std::pair(times.gathering, "gathering parameters"),
                           std::pair(times.reducing, "reducing gradients"),
                           std::pair(times.exchanging, "exchanges of tensor ranks"),
                           std::pair(times.updating, "the optimizer")};
    return std::ranges::max_element(parts, {}, [](const auto& part) { return part.first; })->second;
  }

  const ModelProfile& model_;
  const Machines& machines_;
  const Candidate& candidate_;
  const topology::ParallelConfig& config_;
  const topology::Mesh mesh_;
  const CostTree costs_;
  const int stages_;
  const double microbatches_;
  std::vector<int> stage_of_;  ///< by module
  Elements stage_;
  double last_backward_ = 0;
  double work_ = 0;
  double busy_share_ = 1;
  double sent_bytes_ = 0;
};

}  // namespace

Prediction predict(const ModelProfile& model, const Machines& machines,
                   const Candidate& candidate) {
  return StepPrediction(model, machines, candidate).run();
}

double most_samples_per_second(const ModelProfile& model, const Machines& machines,
                               const Candidate& candidate, double microbatch_seconds) {
  const topology::ParallelConfig& config = candidate.config;
  const double work = microbatch_seconds;
  const auto stages = static_cast<double>(config.pipeline_parallel_degree);
  const auto microbatches = static_cast<double>(config.microbatches);
  // The first microbatch passes all stages, and the slowest stage has all of them. Deferred work
  // fills all of that but the first forward.
  const double unfilled = config.pipeline != "zero_bubble" ? 1 : 1.0 / 3;
  double step = work * (microbatches + unfilled * (stages - 1)) / stages;
  if (machines.processors > 0) {
    step =
        std::max(step, work * microbatches / stages * machines.ranks_a_host / machines.processors);
  }
  return samples_of_step(model, machines, candidate) / step;
}

double samples_of_step(const ModelProfile& model, const Machines& machines,
                       const Candidate& candidate) {
  const topology::ParallelConfig& config = candidate.config;
  const std::int64_t ranks =
      config.pipeline_parallel_degree *
      (config.prescaled_batch ? config.tensor_parallel_degree : std::int64_t{1});
  return static_cast<double>(model.batch * (machines.ranks() / ranks));
}

}  // namespace smp::planner
