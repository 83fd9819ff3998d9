// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/meeting_card.h"

#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

#include "smp_runtime/core/host.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/text.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;

constexpr size_t kFields = 8;

int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(now).count();
}

/// Since the host was booted.
int64_t process_start_ms() {
  constexpr int kBehindName = 19;  // fields between the state and the start, proc(5)
  std::string line;
  std::getline(std::ifstream("/proc/self/stat"), line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string field;
  for (int skipped = 0; skipped <= kBehindName; ++skipped) fields >> field;
  return parse_number<int64_t>(field).value_or(0) * 1000 / sysconf(_SC_CLK_TCK);
}

int64_t process_began_ms() {
  timespec since_boot{};
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  const int64_t up_ms = since_boot.tv_sec * 1000 + since_boot.tv_nsec / 1'000'000;
  return now_ms() - up_ms + process_start_ms();
}

}  // namespace

MeetingCard MeetingCard::fresh(const std::string& host) {
  // The start of one process is read once: the clock may be set while it runs.
  static const std::pair<pid_t, int64_t> begun{getpid(), process_began_ms()};
  const pid_t process = getpid();
  return {.nonce = fresh_nonce(),
          .host = host,
          .host_name = smp::host_name(),
          .process = process,
          .began_ms = process == begun.first ? begun.second : process_began_ms(),
          .came_ms = now_ms(),
          .failed = -1,
          .reason = {}};
}

std::string MeetingCard::text() const {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", nonce, host, host_name, process, began_ms,
                     came_ms, failed, reason);
}

std::optional<MeetingCard> MeetingCard::parse(std::string_view text) {
  std::vector<std::string> fields = split(text, '\n');
  if (fields.size() < kFields) return std::nullopt;
  for (size_t more = kFields; more < fields.size(); ++more) {
    fields[kFields - 1] += '\n' + fields[more];
  }
  const auto process = parse_number<int64_t>(fields[3]);
  const auto began = parse_number<int64_t>(fields[4]);
  const auto came = parse_number<int64_t>(fields[5]);
  const auto failed = parse_number<int>(fields[6]);
  if (!process || !began || !came || !failed) return std::nullopt;
  return MeetingCard{.nonce = fields[0],
                     .host = fields[1],
                     .host_name = fields[2],
                     .process = *process,
                     .began_ms = *began,
                     .came_ms = *came,
                     .failed = *failed,
                     .reason = fields[7]};
}

std::string MeetingCard::whose() const {
  return fmt::format("process {} of host {}", process, host_name);
}

}  // namespace smp::transport
