// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/host_samples.h"

#include <array>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/record/record_file.h"

namespace entrypoint::report {
namespace {

constexpr std::chrono::milliseconds kFirstInterval{1000};
constexpr int kSamplesBeforeDoubling = 600;

ProcessorTime processor_time() {
  std::ifstream file("/proc/stat");
  std::string word;
  file >> word;
  std::array<std::int64_t, 8> fields{};  // user nice system idle iowait irq softirq steal
  ProcessorTime time;
  for (std::size_t i = 0; i < fields.size() && file >> fields[i]; ++i) time.all += fields[i];
  time.busy = time.all - fields[3] - fields[4];
  return time;
}

/// [bytes], of /proc/meminfo.
std::int64_t memory_of(std::string_view wanted) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kilobytes = 0;
  std::string unit;
  while (file >> name >> kilobytes && std::getline(file, unit)) {
    if (name == wanted) return kilobytes * 1024;
  }
  return 0;
}

/// Received and sent [bytes], of all interfaces but the loopback.
std::pair<std::int64_t, std::int64_t> network_bytes() {
  std::ifstream file("/proc/net/dev");
  std::string line;
  std::getline(file, line);
  std::getline(file, line);
  std::pair<std::int64_t, std::int64_t> sum{0, 0};
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.substr(0, colon).ends_with(" lo") || line.starts_with("lo:")) continue;
    std::istringstream fields(line.substr(colon + 1));
    std::int64_t number = 0;
    for (int field = 0; fields >> number; ++field) {
      if (field == 0) sum.first += number;
      if (field == 8) sum.second += number;
    }
  }
  return sum;
}

}  // namespace

HostSample sample_host(ProcessorTime& before) {
  const ProcessorTime now = processor_time();
  const auto all = static_cast<double>(now.all - before.all);
  HostSample sample{.time = smp::record::unix_time(),
                    .cpu = all > 0 ? static_cast<double>(now.busy - before.busy) / all : 0,
                    .memory_total = memory_of("MemTotal:")};
  before = now;
  sample.memory = sample.memory_total - memory_of("MemAvailable:");
  std::tie(sample.received, sample.sent) = network_bytes();
  return sample;
}

void sample_host_for_ever(const std::filesystem::path& folder, const std::string& host) {
  const auto file = folder / fmt::format("host-{}.jsonl", host);
  smp::record::RecordFile record(file.string());
  record.add(nlohmann::json{{"format", 1}, {"host", host}}.dump());
  ProcessorTime before = processor_time();
  auto interval = kFirstInterval;
  for (int samples = 1; record.is_open(); ++samples) {
    std::this_thread::sleep_for(interval);
    const HostSample sample = sample_host(before);
    record.add(nlohmann::json{sample.time, sample.cpu, sample.memory, sample.memory_total,
                              sample.received, sample.sent}
                   .dump());
    record.flush();
    if (samples % kSamplesBeforeDoubling == 0) interval *= 2;
  }
}

}  // namespace entrypoint::report
