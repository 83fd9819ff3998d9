// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/outputs/step_report.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/core/text.h"
#include "smp_runtime/partition/assignment.h"

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

constexpr std::string_view kMore = "…";

/// True if the byte begins a character of UTF-8, each of which takes a column.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

bool fits(std::string_view line, int width) {
  return std::count_if(line.begin(), line.end(), begins_character) <= width;
}

/// The begin of the line, if it is too long.
std::string cut(const std::string& line, int width) {
  if (fits(line, width)) return line;
  std::string begin;
  int room = width;
  for (const char byte : line) {
    if (begins_character(byte) && --room <= 0) break;
    begin += byte;
  }
  return begin.append(kMore);
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::to_string(fmt::join(parts, ", "));
}

/// As many of the parts as there is room for, then the longest end that leaves none out.
std::string fit(const std::string& head, std::vector<std::string> parts,
                const std::vector<std::string>& ends, int width) {
  for (const std::string& end : ends) {
    std::string line = head + joined(parts) + ", " + end;
    if (fits(line, width)) return line;
  }
  std::string line = head + joined(parts);
  while (!fits(line, width) && parts.size() > 1) {
    parts.pop_back();
    line = head + joined(parts) + ", " + std::string(kMore);
  }
  return cut(line, width);
}

/// A processor's own NaN is negative, which nobody wants to see.
std::string loss_text(double loss) {
  return std::isnan(loss) ? "loss nan" : fmt::format("loss {:.4g}", loss);
}

std::string duration_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  // Halves go to the even number.
  const auto minutes = static_cast<std::int64_t>(std::nearbyint(seconds / 60));
  if (seconds < 5400) return fmt::format("{} min", minutes);
  if (seconds < 172'800) return fmt::format("{} h {} min", minutes / 60, minutes % 60);
  return fmt::format("{} d {} h", minutes / 1440, minutes % 1440 / 60);
}

/// Ways to say it, the longest first.
std::vector<std::string> memory_texts(const StepReport& report) {
  MemoryLedger held = report.memory_bytes;
  std::erase_if(held, [](const auto& entry) { return entry.second <= 0; });
  std::stable_sort(held.begin(), held.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> amounts;
  for (auto& [kind, bytes] : held) {
    std::replace(kind.begin(), kind.end(), '_', ' ');
    amounts.push_back(fmt::format("{} {}", kind, partition::human_bytes(bytes)));
  }
  const std::string peak = "peak " + partition::human_bytes(report.peak_memory_bytes);
  std::vector<std::string> texts;
  if (!amounts.empty()) texts.push_back(fmt::format("{} ({})", peak, joined(amounts)));
  while (amounts.size() > 1) {
    amounts.pop_back();
    texts.push_back(fmt::format("{} ({}, {})", peak, joined(amounts), kMore));
  }
  texts.push_back(peak);
  return texts;
}

ordered_json share_of(const std::optional<StepShares>& shares, double StepShares::*which) {
  return shares ? json_of((*shares).*which) : ordered_json();
}

/// What is not computed in are waits.
std::string pipeline_text(const StepShares& of) {
  const std::string text = fmt::format("pipeline {:.0f} %", 100 * of.computed);
  if (of.deferred == 0) return text;
  return fmt::format("{} (forward {:.0f}, backward {:.0f}, deferred {:.0f})", text,
                     100 * of.forward, 100 * (of.computed - of.forward - of.deferred),
                     100 * of.deferred);
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
      {"pipeline_use", share_of(report.pipeline, &StepShares::computed)},
      {"pipeline_forward", share_of(report.pipeline, &StepShares::forward)},
      {"pipeline_deferred", share_of(report.pipeline, &StepShares::deferred)},
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

std::string progress_line(const StepReport& report, const LineContext& context) {
  std::string head = fmt::format("step {}", report.step);
  if (context.total && report.step <= *context.total) {
    head += fmt::format(" of {}", *context.total);
  }
  std::vector<std::string> parts;
  if (report.loss) {
    const bool is_share = report.loss_ranks == 1 && context.replicas > 1;
    parts.push_back(loss_text(*report.loss) + (is_share ? " (first replica)" : ""));
  }
  const double rate = report.samples_per_second;
  if (rate >= 10) {
    parts.push_back(fmt::format("{:.0f} samples/s", rate));
  } else if (rate > 0) {
    parts.push_back(fmt::format("{:.2g} samples/s", rate));
  }
  if (context.seconds_left) parts.push_back(duration_text(*context.seconds_left) + " left");
  if (context.pipeline && report.pipeline) parts.push_back(pipeline_text(*report.pipeline));
  if (report.flops && report.flops->utilization) {
    parts.push_back(fmt::format("{:.0f} % of the peak FLOP/s", 100 * *report.flops->utilization));
  }
  parts.push_back(fmt::format("waiting for data {:.0f} %", 100 * report.data_wait_share));
  return fit(head + ": ", std::move(parts), memory_texts(report), context.columns);
}

std::string evaluation_line(std::int64_t step, std::int64_t steps, std::optional<double> loss,
                            const LineContext& context) {
  const std::string after = step != 0 ? fmt::format("after step {}", step) : "before step 1";
  const std::string counted = fmt::format("{} step{}{}", steps, steps > 1 ? "s" : "",
                                          context.replicas > 1 ? " of the first replica" : "");
  const std::string text = loss ? fmt::format("{}, mean of {}", loss_text(*loss), counted)
                                : counted + ", which returned no loss";
  return cut(fmt::format("evaluation {}: {}", after, text), context.columns);
}

}  // namespace smp::metrics
