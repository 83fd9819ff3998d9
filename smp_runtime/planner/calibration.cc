// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/calibration.h"

#include <algorithm>
#include <cmath>

#include "smp_runtime/core/error.h"

namespace smp::planner {
namespace {

constexpr double kMostChange = 64;        // of a speed; more is no matter of speed
constexpr double kMostLinkChange = 16;    // an exchange that is hidden tells no more
constexpr int kHalvings = 14;             // of the range of a factor
constexpr double kTooShortToTell = 0.01;  // share of a step that exchanges take

void speed_up(Device& device, double factor) {
  device.flops_32 *= factor;
  device.flops_16 *= factor;
  device.bytes_per_second *= factor;
  device.operation_seconds /= factor;
}

void speed_up(Link& link, double factor) {
  link.bytes_per_second *= factor;
  link.latency_seconds /= factor;
}

double work(const StepTimes& times) { return times.computing + times.recomputing; }
double exchange(const StepTimes& times) {
  return times.gathering + times.reducing + times.exchanging;
}

class Fitting {
 public:
  Fitting(ModelProfile& model, Machines& machines, const MeasuredRun& run)
      : model_(model),
        machines_(machines),
        run_(run),
        candidate_(make_candidate(model, there(), run.settings, 0)) {}

  Calibration fit() {
    if (run_.batch != 0 && run_.batch != model_.batch) {
      throw ConfigError(
          "the run to calibrate by has {} samples in a step, and the script {}: give a report of "
          "this script with this batch",
          run_.batch, model_.batch);
    }
    result_.predicted = predicted();
    if (!machines_.device.is_gpu) {
      fit_device();
      fit_links();
    }
    fit_step();
    fit_activations();
    return result_;
  }

 private:
  [[nodiscard]] Machines there() const {
    Machines machines = machines_;
    machines.hosts = run_.hosts;
    machines.ranks_a_host = run_.ranks_a_host;
    check_machines(machines);
    return machines;
  }

  [[nodiscard]] Prediction predicted() const { return predict(model_, there(), candidate_); }

  [[nodiscard]] Link& slowest_link() {
    return run_.hosts > 1 ? machines_.between : machines_.inside;
  }

  static double factor_of(double predicted, double measured) {
    const double factor = measured > 0 ? predicted / measured : 0;
    if (factor >= 1 / kMostChange && factor <= kMostChange) return factor;
    throw ConfigError(
        "the run to calibrate by took {:.3g} s where {:.3g} s are predicted: it is of another "
        "script, or of other machines than these",
        measured, predicted);
  }

  void fit_device() {
    if (work(run_.times) <= 0) return;
    const double factor = factor_of(work(predicted().times), work(run_.times));
    speed_up(machines_.device, factor);
    result_.device_speed *= factor;
  }

  /// Exchanges get shorter with faster links, but as far as work hides them not in proportion.
  void fit_links() {
    const double measured = exchange(run_.times);
    const double before = exchange(predicted().times);
    if (before <= 0 || std::max(before, measured) < kTooShortToTell * run_.step_seconds) return;
    const Link own = slowest_link();
    double low = -std::log2(kMostLinkChange);
    double high = -low;
    for (int halving = 0; halving < kHalvings; ++halving) {
      const double middle = (low + high) / 2;
      slowest_link() = own;
      speed_up(slowest_link(), std::exp2(middle));
      (exchange(predicted().times) > measured ? low : high) = middle;
    }
    result_.link_speed = std::exp2((low + high) / 2);
    slowest_link() = own;
    speed_up(slowest_link(), result_.link_speed);
  }

  /// All alike: the order of candidates stays.
  void fit_step() {
    const double factor = factor_of(predicted().times.step(), run_.step_seconds);
    speed_up(machines_.device, factor);
    machines_.device.host_bytes_per_second *= factor;
    speed_up(machines_.inside, factor);
    speed_up(machines_.between, factor);
    result_.device_speed *= factor;
    result_.link_speed *= factor;
  }

  /// What regions of a checkpoint keep is known, and what they would keep is in no ledger.
  void fit_activations() {
    const double expected = result_.predicted.memory.activations;
    if (run_.activation_bytes <= 0 || expected <= 0 || candidate_.config.offload_activations ||
        recomputation_of(model_, candidate_).recomputes()) {
      return;
    }
    result_.activations = run_.activation_bytes / expected;
    const auto scaled = [&](std::int64_t bytes) {
      return std::llround(static_cast<double>(bytes) * result_.activations);
    };
    for (Recomputation& how : model_.recomputations) {
      for (std::size_t module = 0; module < how.kept_bytes.size(); ++module) {
        if (!how.recomputed[module]) how.kept_bytes[module] = scaled(how.kept_bytes[module]);
      }
      how.once_bytes = scaled(how.once_bytes);
    }
  }

  ModelProfile& model_;
  Machines& machines_;
  const MeasuredRun& run_;
  const Candidate candidate_;
  Calibration result_;
};

}  // namespace

Calibration calibrate(ModelProfile& model, Machines& machines, const MeasuredRun& run) {
  check_profile(model);
  return Fitting(model, machines, run).fit();
}

}  // namespace smp::planner
