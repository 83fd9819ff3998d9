// SPDX-License-Identifier: Apache-2.0
// Lines of many ranks on their way through the launcher, as `train` passes them on: tags rewritten,
// secrets looked for, the last ones remembered for the failure text.
//
// usage: log_lines speak RANKS LINES   the lines of each rank, as mpirun tags them, to stdout
//        log_lines pass RANKS LINES    starts the former below a Supervisor, which writes to
//        stdout;
//                                      then one JSON object to stderr
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "entrypoint/job/failure/output_record.h"
#include "entrypoint/process/supervisor.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr int kRanksOfHost = 8;

void speak(int ranks, int lines) {
  std::string text;
  for (int line = 0; line < lines; ++line) {
    text.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      const char* const stream = line % 4 == 3 ? "stderr" : "stdout";
      fmt::format_to(std::back_inserter(text),
                     "[1,{}]<{}>:step {} of {}: loss 2.3026, 512 samples/s, lr 0.001\n", rank,
                     stream, line, lines);
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// Peak of resident memory.
long peak_kb() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss;
}

int pass(const std::string& program, int ranks, int lines) {
  std::vector<std::string> hosts;
  for (int host = 0; host * kRanksOfHost < ranks; ++host) {
    hosts.push_back(fmt::format("algo-{}", host + 1));
  }
  Supervisor supervisor;
  OutputRecord record;
  long pieces = 0;
  long peak_of_half = 0;
  record.expect_mpirun();
  supervisor.watch_output([&](StreamKind kind, const RankTag* tag, std::string_view piece) {
    record.add(kind, tag, piece);
    if (++pieces == static_cast<long>(ranks) * lines / 2) peak_of_half = peak_kb();
  });
  supervisor.set_rank_tags(RankTags(hosts, kRanksOfHost));
  const double before = processor_seconds();
  const ChildId child =
      supervisor.start({.name = "mpirun",
                        .argv = {program, "speak", std::to_string(ranks), std::to_string(lines)},
                        .environment = current_environment(),
                        .output = Output::kStream});
  while (!supervisor.ended(child)) supervisor.wait(kNever);
  const nlohmann::json row{{"lines", pieces},
                           {"processor_s", processor_seconds() - before},
                           {"peak_kb", peak_kb()},
                           {"peak_of_half_kb", peak_of_half},
                           {"ranks_remembered", record.processes().size()}};
  std::fprintf(stderr, "%s\n", row.dump().c_str());
  return supervisor.ended(child)->ok() ? 0 : 1;
}

}  // namespace
}  // namespace entrypoint

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const auto ranks = words.size() == 3 ? smp::parse_number<int>(words[1]) : std::nullopt;
  const auto lines = words.size() == 3 ? smp::parse_number<int>(words[2]) : std::nullopt;
  if (!ranks || !lines || (words[0] != "speak" && words[0] != "pass")) {
    std::fprintf(stderr, "usage: log_lines speak|pass RANKS LINES\n");
    return 2;
  }
  if (words[0] == "pass") return entrypoint::pass("/proc/self/exe", *ranks, *lines);
  entrypoint::speak(*ranks, *lines);
  return 0;
}
