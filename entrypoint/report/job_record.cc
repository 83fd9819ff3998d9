// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/job_record.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "entrypoint/report/record_json.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/record/record_file.h"

namespace entrypoint::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kNamed = 8;  // ranks in a sentence

bool has_form(const fs::path& file, std::string_view start) {
  return file.filename().string().starts_with(start) && file.extension() == ".jsonl";
}

std::string named(const std::vector<int>& ranks) {
  const std::vector<int> first(ranks.begin(),
                               ranks.begin() + static_cast<long>(std::min(ranks.size(), kNamed)));
  return fmt::format(
      "{}{}", fmt::join(first, ", "),
      ranks.size() > kNamed ? fmt::format(" and {} more", ranks.size() - kNamed) : "");
}

HostRecord read_host_record(const fs::path& file, std::vector<std::string>& problems) {
  HostRecord host{.name = file.stem().string().substr(std::string_view("host-").size())};
  std::ifstream stream(file);
  std::string line;
  int bad = 0;
  while (std::getline(stream, line) && !stream.eof()) {
    const json row = record_line(line);
    try {
      if (row.is_object()) {  // the header
        host.instance_type = row.value("instance_type", "");
        host.processors = row.value("processors", 0);
        continue;
      }
      host.samples.push_back({.time = row.at(0),
                              .cpu = row.at(1),
                              .memory = record_number(row.at(2)),
                              .memory_total = record_number(row.at(3)),
                              .received = record_number(row.at(4)),
                              .sent = record_number(row.at(5))});
    } catch (const std::exception&) {
      ++bad;
    }
  }
  if (bad > 0) problems.push_back(fmt::format("{}: {} lines cannot be read", file.string(), bad));
  return host;
}

/// When the job of a record began, for telling old from new.
std::int64_t begin_of(const RankRecord& record) { return record.all.begin; }

/// Keeps the records of the newest job.
void keep_one_job(JobRecord& job) {
  std::set<std::string> jobs;
  for (const RankRecord& rank : job.ranks) jobs.insert(rank.job);
  if (jobs.size() < 2) return;
  const auto newest = std::ranges::max_element(job.ranks, {}, begin_of);
  const std::string kept = newest->job;
  std::vector<int> dropped;
  for (const RankRecord& rank : job.ranks) {
    if (rank.job != kept) dropped.push_back(rank.rank);
  }
  std::erase_if(job.ranks, [&](const RankRecord& rank) { return rank.job != kept; });
  job.problems.push_back(
      fmt::format("the files are of {} jobs; shown is the newest, without those of ranks {}",
                  jobs.size(), named(dropped)));
}

/// Adds the traffic of smddp's groups, of ranks that recorded nothing else of the kind.
void add_groups(JobRecord& job, std::vector<RankRecord> groups) {
  std::set<int> recorded;
  for (const RankRecord& rank : job.ranks) recorded.insert(rank.rank);
  for (RankRecord& group : groups) {
    if (recorded.contains(group.rank)) continue;
    const auto same = std::ranges::find(job.ranks, group.rank, &RankRecord::rank);
    if (same == job.ranks.end()) {
      job.ranks.push_back(std::move(group));
      continue;
    }
    for (const auto& [rank, sent] : group.sent) {
      same->sent[rank].messages += sent.messages;
      same->sent[rank].bytes += sent.bytes;
    }
  }
}

void tell_of_missing_ranks(JobRecord& job) {
  std::vector<int> missing;
  int size = 0;
  for (const RankRecord& rank : job.ranks) {
    if (rank.facts.is_object()) size = std::max(size, rank.facts.value("ranks", 0));
  }
  for (int rank = 0; rank < size; ++rank) {
    if (job.rank(rank) == nullptr) missing.push_back(rank);
  }
  if (missing.empty()) return;
  job.problems.push_back(
      fmt::format("of {} ranks the records of {} are missing: {}; they lie where their hosts keep "
                  "SM_OUTPUT_DATA_DIR/records: give those folders, too",
                  size, missing.size(), named(missing)));
}

void add_suggestion(JobRecord& job, const fs::path& file) {
  if (job.ranks.empty() || !job.ranks.front().facts.is_object()) return;
  auto found = read_suggested_step(file, job.ranks.front().facts.value("settings", json()));
  if (auto* problem = std::get_if<std::string>(&found)) {
    job.problems.push_back(std::move(*problem));
  } else {
    job.suggested = std::get<SuggestedStep>(std::move(found));
  }
}

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

const RankRecord* JobRecord::rank(int number) const {
  const auto found = std::ranges::lower_bound(ranks, number, {}, &RankRecord::rank);
  return found != ranks.end() && found->rank == number ? &*found : nullptr;
}

JobRecord read_job_record(std::span<const fs::path> places, fs::file_time_type since) {
  JobRecord job;
  std::vector<std::string> searched;
  std::vector<ToldSteps> told;
  std::vector<RankRecord> groups;
  for (const fs::path& folder : places) {
    searched.push_back(folder.string());
    if (folder.filename() == kSuggestionFile) continue;  // it is held against the ranks' settings
    if (fs::is_regular_file(folder)) {
      told.push_back(read_metrics(folder));
      continue;
    }
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
      const fs::path& file = entry.path();
      std::error_code gone;
      if (entry.last_write_time(gone) < since) continue;
      if (has_form(file, "smddp-")) {
        groups.push_back(read_rank_record(file));
      } else if (has_form(file, "rank-")) {
        job.ranks.push_back(read_rank_record(file));
      } else if (has_form(file, "host-")) {
        job.hosts.push_back(read_host_record(file, job.problems));
      } else if (has_form(file, "log-")) {
        told.push_back(read_step_log(file));
      }
    }
    if (unreadable) {
      job.problems.push_back(fmt::format("{}: {}", folder.string(), unreadable.message()));
    }
  }
  std::ranges::sort(job.ranks, {}, &RankRecord::rank);
  keep_one_job(job);
  add_groups(job, std::move(groups));
  const auto longest =
      std::ranges::max_element(told, {}, [](const ToldSteps& one) { return one.steps.size(); });
  const bool recorded =
      std::ranges::any_of(job.ranks, [](const RankRecord& rank) { return rank.all.steps > 0; });
  if (!recorded && longest != told.end() && !longest->steps.empty()) job.told = std::move(*longest);
  if (job.ranks.empty() && job.hosts.empty() && !job.told) {
    throw smp::ConfigError(
        "no records of a job in {}; expected files rank-N.jsonl or host-NAME.jsonl, which a job "
        "writes into SM_OUTPUT_DATA_DIR/records or the folder SMP_RECORDS, or a file of "
        "SMP_METRICS",
        fmt::join(searched, ", "));
  }
  std::ranges::sort(job.ranks, {}, &RankRecord::rank);
  std::ranges::sort(job.hosts, {}, &HostRecord::name);
  for (RankRecord& rank : job.ranks) {
    job.problems.insert(job.problems.end(), rank.problems.begin(), rank.problems.end());
  }
  tell_of_missing_ranks(job);
  for (const fs::path& place : places) {
    if (place.filename() == kSuggestionFile) add_suggestion(job, place);
  }
  return job;
}

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

void sample_host_for_ever(const std::filesystem::path& folder, const HostRecord& host) {
  const auto file = folder / fmt::format("host-{}.jsonl", host.name);
  smp::record::RecordFile record(file.string());
  record.add(nlohmann::json{{"format", 1},
                            {"host", host.name},
                            {"instance_type", host.instance_type},
                            {"processors", host.processors}}
                 .dump());
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
