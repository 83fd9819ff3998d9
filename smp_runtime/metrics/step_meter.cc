// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/step_meter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/metrics/outputs/step_report.h"
#include "smp_runtime/metrics/process_memory.h"
#include "smp_runtime/record/record_file.h"

namespace smp::metrics {
namespace {

using topology::Group;

constexpr int kTraining = 3;  // operations of a forward and its backward, by the forward's

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

/// Number of columns of a line that a terminal can rewrite, since it does not wrap.
int columns(bool on_terminal) {
  winsize size{};
  if (!on_terminal || ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) {
    return kColumns;
  }
  return std::min(kColumns, size.ws_col - 1);
}

bool is_due(const std::optional<double>& last, double now, double interval) {
  return !last || now - *last >= interval;
}

}  // namespace

StepMeter::StepMeter(Options options, Ledger ledger, std::shared_ptr<ReplicaLoss> replica_loss,
                     std::shared_ptr<record::Recorder> recorder)
    : options_(std::move(options)),
      clock_(options_.clock ? options_.clock : Clock(steady_seconds)),
      ledger_(std::move(ledger)),
      replica_loss_(std::move(replica_loss)),
      recorder_(std::move(recorder)),
      on_terminal_(isatty(STDERR_FILENO) == 1),
      process_(getpid()) {}

StepMeter::~StepMeter() {
  try {
    close();
  } catch (const std::exception& error) {  // a GPU's, which the loss of an evaluation waits for
    SMP_LOG(warning, "the last steps are not told: {}", error.what());
  }
}

void StepMeter::begin_step() {
  begun_ = clock_();
  if (!ended_) ended_ = busy_until_ = begun_;
  if (replica_loss_) replica_loss_->forget();
}

void StepMeter::end_step(const EngineUse& use, std::int64_t samples, const at::Tensor& loss,
                         bool training) {
  SMP_CHECK(ended_, "a step ended that did not begin");
  const at::NoGradGuard no_grad;
  const double now = clock_();
  if (training) {
    end_evaluation();
    if (++steps_ == 1) first_step_ended_ = now;
  } else {
    if (!evaluation_) evaluation_.emplace();
    ++evaluation_->steps;
    evaluation_->is_shown = false;
    if (loss.defined()) {
      const std::int64_t weight = std::max<std::int64_t>(samples, 1);
      const at::Tensor weighted = at::mul(loss, weight);
      at::Tensor& sum = evaluation_->loss;
      sum = sum.defined() ? at::add(sum, weighted.to(sum.device())) : weighted;
      evaluation_->samples += weight;
    }
  }
  StepReport report = account(use, samples, training, now);
  ended_ = busy_until_ = now;
  const bool shows =
      options_.progress && (on_terminal_ || is_due(last_line_, now, options_.interval));
  const bool due = is_due(last_output_, now, options_.interval);
  const bool wanted = std::ranges::any_of(
      options_.outputs, [&](const auto& output) { return due || output->each_step(); });
  if (wanted || (shows && training)) {
    const MeanLoss mean = loss_of(loss);
    report.loss = mean.loss;
    report.loss_ranks = mean.ranks;
    note_loss(report);
    report.memory_bytes = ledger_();
  }
  if (shows && training) {
    show_step(report);
  } else if (shows) {
    show_evaluation();
  }
  if (due) last_output_ = now;
  if (wanted) write(report, due);
}

StepReport StepMeter::account(const EngineUse& use, std::int64_t samples, bool training,
                              double now) const {
  const double seconds = now - *ended_;
  const std::int64_t of_all = samples * options_.replicas;
  return {.step = steps_,
          .evaluation = !training,
          .time = record::unix_time(),
          .seconds = seconds,
          .global_batch_size = of_all,
          .samples_per_second = static_cast<double>(of_all) / seconds,
          .pipeline = use.pipeline,
          .data_wait_share = std::max(0.0, begun_ - busy_until_) / seconds,
          .peak_memory_bytes = peak_memory_bytes(),
          .messages_sent = use.messages_sent,
          .bytes_sent = use.bytes_sent,
          .flops = flops_of(seconds, training),
          .loss = {},
          .memory_bytes = {}};
}

std::optional<StepFlops> StepMeter::flops_of(double seconds, bool training) const {
  if (!options_.flops) return std::nullopt;
  if (!forward_flops_) return StepFlops{};
  const std::int64_t flops =
      *forward_flops_ * options_.flops->microbatches * (training ? kTraining : 1);
  StepFlops found{.flops = flops,
                  .per_second = static_cast<double>(flops) / options_.flops->ranks / seconds,
                  .utilization = {}};
  if (options_.flops->peak) found.utilization = *found.per_second / *options_.flops->peak;
  return found;
}

MeanLoss StepMeter::loss_of(const at::Tensor& own) {
  std::optional<MeanLoss> mean;
  if (replica_loss_) mean = replica_loss_->mean();
  if (!mean) {
    mean.emplace();
    if (own.defined()) mean = MeanLoss{.loss = own.item<double>(), .ranks = 1};
  }
  if (mean->loss && !std::isfinite(*mean->loss) && !std::exchange(loss_is_lost_, true)) {
    SMP_LOG(warning,
            "the loss is {} in step {}: what is trained now cannot be used. Look at that batch, "
            "lower the learning rate or clip gradients; torch.autograd.set_detect_anomaly(True) "
            "names the operation",
            *mean->loss, steps_);
  }
  return *mean;
}

/// In the rank's record: [step, loss, whether it trained, time, samples].
void StepMeter::note_loss(const StepReport& report) {
  if (!recorder_ || !recorder_->records()) return;
  const bool is_number = report.loss && std::isfinite(*report.loss);
  recorder_->note("loss", fmt::format("[{}, {}, {}, {}, {}]", report.step,
                                      is_number ? fmt::to_string(*report.loss) : "null",
                                      !report.evaluation, report.time, report.global_batch_size));
}

/// To each output that is to have it. One that fails is left out from then on: no job ends for its
/// metrics.
void StepMeter::write(StepReport& report, bool due) {
  std::erase_if(options_.outputs, [&](const auto& output) {
    if (!due && !output->each_step()) return false;
    try {
      output->write(report);
      return false;
    } catch (const HostError& error) {
      SMP_LOG(warning, "{}: no more metrics: {}", output->variable(), error.what());
      return true;
    }
  });
}

void StepMeter::close() {
  if (getpid() != process_) return;
  end_evaluation();
  end_line();
  options_.outputs.clear();
  options_.progress = false;
}

// --- The line ---

/// As the steps after the first one went, with all that was between them.
std::optional<double> StepMeter::seconds_left() const {
  const std::int64_t done = steps_ - 1;
  if (!total_ || done <= 0 || done >= *total_ - 1 || !ended_) return std::nullopt;
  return (*ended_ - first_step_ended_) / static_cast<double>(done) *
         static_cast<double>(*total_ - steps_);
}

void StepMeter::show_step(const StepReport& report) {
  show(progress_line(report, {.total = total_,
                              .seconds_left = seconds_left(),
                              .pipeline = options_.pipeline,
                              .replicas = options_.replicas,
                              .columns = columns(on_terminal_)}));
}

void StepMeter::show_evaluation() {
  evaluation_->is_shown = true;
  std::optional<double> loss;
  if (evaluation_->loss.defined()) {
    loss = evaluation_->loss.item<double>() / static_cast<double>(evaluation_->samples);
  }
  show(evaluation_line(steps_, evaluation_->steps, loss,
                       {.replicas = options_.replicas, .columns = columns(on_terminal_)}));
}

/// Says what came of it; the line stays on a terminal, too.
void StepMeter::end_evaluation() {
  if (evaluation_ && options_.progress) {
    if (!evaluation_->is_shown) show_evaluation();
    end_line();
  }
  evaluation_.reset();
}

void StepMeter::show(const std::string& text) {
  if (ended_) last_line_ = ended_;
  if (!on_terminal_) {
    SMP_LOG(info, "{}", text);
    return;
  }
  // Without a look at the outcome: no job ends for its terminal.
  const std::string line = "\r" + text + "\x1b[K";
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  line_is_open_ = true;
}

void StepMeter::end_line() {
  if (std::exchange(line_is_open_, false)) std::fputc('\n', stderr);
}

std::shared_ptr<StepMeter> make_step_meter(session::Session& session, StepMeter::Ledger ledger,
                                           std::shared_ptr<ReplicaLoss> replica_loss) {
  if (session.ranks().rank != 0 || !reports(session.options())) return nullptr;
  const topology::Mesh& mesh = session.mesh();
  // With prescaled_batch the ranks of a tensor-parallel group get one batch.
  StepMeter::Options options{
      .replicas = mesh.size(session.config().prescaled_batch ? Group::kRdp : Group::kDp),
      .pipeline = mesh.size(Group::kPp) > 1,
      .progress = session.options().progress,
      .outputs = metric_outputs(session.options())};
  return std::make_shared<StepMeter>(std::move(options), std::move(ledger), std::move(replica_loss),
                                     session.recorder());
}

}  // namespace smp::metrics
