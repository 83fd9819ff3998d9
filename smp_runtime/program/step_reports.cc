// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/program/step_reports.h"

#include <exception>
#include <string>
#include <utility>

#include "smp/version.h"
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <torch/version.h>

#include "smp_runtime/core/log.h"

namespace smp::program {
namespace {

/// A scalar of 64 bits, where the losses are; undefined where one is no single number.
at::Tensor loss_of(const Tensors& results) {
  const at::NoGradGuard no_grad;
  Tensors numbers;
  for (const at::Tensor& result : results) {
    if (!result.defined() || result.numel() != 1 || !result.is_floating_point()) return {};
    numbers.push_back(result.reshape({}).to(at::kDouble));
  }
  return numbers.empty() ? at::Tensor() : at::stack(numbers).mean();
}

}  // namespace

StepReports::StepReports(session::Session& session)
    : replica_loss_(metrics::make_replica_loss(session)) {
  const auto ledger = [memory = memory_] {
    return memory->ledger ? memory->ledger() : metrics::MemoryLedger();
  };
  meter_ = metrics::make_step_meter(session, ledger, replica_loss_);
  if (!session.recorder()) return;
  const std::string library = version();
  metrics::note_job(
      session,
      {.device = at::hasCUDA() ? "CUDA" : "CPU", .library = library, .torch = TORCH_VERSION});
  records_ = std::make_unique<metrics::StepRecords>(session.recorder(), ledger, [memory = memory_] {
    return memory->formula ? memory->formula() : 0;
  });
}

StepReports::~StepReports() {
  // Else a rank that ends first would take its part of the exchange along.
  if (!replica_loss_ || std::uncaught_exceptions() > 0) return;
  try {
    static_cast<void>(replica_loss_->mean());
  } catch (const std::exception& error) {
    SMP_LOG(error, "{}", error.what());
  }
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

void StepReports::begin_step() {
  if (meter_) {
    meter_->begin_step();
  } else if (replica_loss_) {
    replica_loss_->forget();
  }
}

void StepReports::averaged(const Tensors& results, at::Device device) {
  if (replica_loss_) replica_loss_->exchange(loss_of(results), device);
}

void StepReports::end_step(const metrics::EngineUse& use, std::int64_t samples,
                           const Tensors& results, bool trained) {
  if (records_) records_->end_step(samples, trained);
  if (meter_) meter_->end_step(use, samples, loss_of(results), trained);
}

void StepReports::optimizer_stepped() {
  if (meter_) meter_->optimizer_stepped();
}

void StepReports::event(std::string_view kind, std::string_view text) {
  if (records_) records_->event(kind, text);
}

}  // namespace smp::program
