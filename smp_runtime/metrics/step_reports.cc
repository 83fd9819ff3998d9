// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/step_reports.h"

#include <exception>
#include <utility>

#include "smp_runtime/core/log.h"

namespace smp::metrics {

using topology::Group;

StepReports::StepReports(session::Session& session, const JobFacts& facts)
    : session_(session), replica_loss_(make_replica_loss(session)) {
  const auto ledger = [memory = memory_] {
    return memory->ledger ? memory->ledger() : MemoryLedger();
  };
  meter_ = make_step_meter(session, ledger, replica_loss_);
  if (!session.recorder()) return;
  note_job(session, facts);
  records_ = std::make_unique<StepRecords>(session.recorder(), ledger, [memory = memory_] {
    return memory->formula ? memory->formula() : 0;
  });
}

void StepReports::set_memory(const void* owner, Memory memory) {
  *memory_ = std::move(memory);
  memory_->owner = owner;
}

void StepReports::forget_memory(const void* owner) {
  if (memory_->owner == owner) *memory_ = {};
}

void StepReports::set_total(std::int64_t steps) {
  if (meter_) meter_->set_total(steps);
}

void StepReports::set_interval(double seconds) {
  if (meter_) meter_->set_interval(seconds);
}

bool StepReports::count_flops(bool on_gpu, std::optional<double> peak) {
  const topology::Mesh& mesh = session_.mesh();
  if (!meter_ || mesh.size(Group::kTp) > 1 || !(on_gpu || meter_->has_outputs())) return false;
  meter_->count_flops({.microbatches = session_.config().microbatches * meter_->replicas(),
                       .ranks = session_.ranks().size,
                       .peak = peak});
  return true;
}

void StepReports::set_forward_flops(std::int64_t flops) {
  if (meter_) meter_->set_forward_flops(flops);
}

void StepReports::begin_step() {
  if (meter_) {
    meter_->begin_step();
  } else if (replica_loss_) {
    replica_loss_->forget();
  }
}

void StepReports::averaged(const at::Tensor& loss, at::Device device) {
  if (replica_loss_) replica_loss_->exchange(loss, device);
}

void StepReports::end_step(const EngineUse& use, std::int64_t samples, const at::Tensor& loss,
                           bool trained) {
  if (records_) records_->end_step(samples, trained);
  if (meter_) meter_->end_step(use, samples, loss, trained);
}

void StepReports::begin_optimizer() {
  if (records_) session_.recorder()->begin_optimizer();
}

void StepReports::end_optimizer() {
  if (records_) session_.recorder()->end_optimizer();
  if (meter_) meter_->optimizer_stepped();
}

void StepReports::event(std::string_view kind, std::string_view text) {
  if (records_) records_->event(kind, text);
}

void StepReports::await_last_loss() {
  if (!replica_loss_) return;
  try {
    static_cast<void>(replica_loss_->mean());
  } catch (const std::exception& error) {
    SMP_LOG(error, "{}", error.what());
  }
}

void StepReports::close() {
  if (meter_) meter_->close();
  if (records_) session_.recorder()->close();
}

}  // namespace smp::metrics
