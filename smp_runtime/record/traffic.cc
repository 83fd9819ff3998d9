// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/record/traffic.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace smp::record {

void Traffic::add(int rank, std::int64_t bytes) {
  Sent& sent = sent_[rank];
  ++sent.messages;
  sent.bytes += bytes;
  changed_ = true;
}

std::string Traffic::take_line() {
  std::string rows;
  for (const auto& [rank, sent] : sent_) {
    fmt::format_to(std::back_inserter(rows), "{}[{},{},{}]", rows.empty() ? "" : ",", rank,
                   sent.messages, sent.bytes);
  }
  changed_ = false;
  return fmt::format(R"({{"traffic":[{}]}})", rows);
}

TrafficRecord::TrafficRecord(std::string name, int rank, const std::string& host)
    : rank_(rank), file_(std::move(name)) {
  file_.add(nlohmann::json{{"format", 1}, {"rank", rank}, {"host", host}}.dump());
}

void TrafficRecord::sent(std::span<const int> ranks, std::int64_t bytes) {
  if (bytes == 0) return;
  for (const int rank : ranks) {
    if (rank != rank_) traffic_.add(rank, bytes);
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < due_) return;
  due_ = now + std::chrono::seconds(1);
  flush();
}

void TrafficRecord::flush() {
  if (!traffic_.changed() || !file_.is_open()) return;
  file_.add(traffic_.take_line());
  file_.flush();
}

}  // namespace smp::record
