// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/outputs/step_report.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "smp_runtime/core/json_line.h"

namespace smp::metrics {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return number;
}

ordered_json json_of(const std::optional<double>& number) {
  return number ? json_of(*number) : ordered_json();
}

ordered_json json_of(const MemoryLedger& ledger) {
  ordered_json kinds = ordered_json::object();
  for (const auto& [kind, bytes] : ledger) kinds[kind] = bytes;
  return kinds;
}

}  // namespace

std::string as_json(const StepReport& report) {
  ordered_json object = {
      {"step", report.step},
      {"evaluation", report.evaluation},
      {"time", json_of(report.time)},
      {"seconds", json_of(report.seconds)},
      {"global_batch_size", report.global_batch_size},
      {"samples_per_second", json_of(report.samples_per_second)},
      {"pipeline_use", json_of(report.pipeline_use)},
      {"data_wait_share", json_of(report.data_wait_share)},
      {"peak_memory_bytes", report.peak_memory_bytes},
      {"messages_sent", report.messages_sent},
      {"bytes_sent", report.bytes_sent},
  };
  if (report.flops) {
    const StepFlops& counted = *report.flops;
    object["flops"] = counted.flops ? ordered_json(*counted.flops) : ordered_json();
    object["flops_per_second"] = json_of(counted.per_second);
    object["flops_utilization"] = json_of(counted.utilization);
  }
  object["loss"] = json_of(report.loss);
  object["loss_ranks"] = report.loss_ranks;
  object["memory_bytes"] = json_of(report.memory_bytes);
  return json_line(object, /*in_ascii=*/true);
}

}  // namespace smp::metrics
