// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/cause.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "entrypoint/job/failure/line_kinds.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr long kFewWords = 12;  // that an exit may still say; a training says more
// [bytes] Of the other stream, that arrive behind a traceback and were written before it: what
// Python buffers of a pipe (8 KiB) and what mpirun holds back.
constexpr std::size_t kBuffered = 16 * 1024;

/// A process as the judgement sees it.
struct Suspect {
  int rank = OutputRecord::kNoRank;
  const ProcessRecord* record = nullptr;
  std::optional<ExitStatus> status = std::nullopt;  ///< none: nobody said
  bool shares_streams = false;                      ///< others wrote between its lines
  bool installs = false;                            ///< pip, which quotes and then sums up
};

bool ended_by_traceback(const Suspect& suspect) {
  const Traceback* const traceback = suspect.record->traceback();
  if (traceback == nullptr || traceback->exception().empty()) return false;
  const ProcessRecord::Since& since = suspect.record->since_traceback();
  if ((suspect.status && suspect.status->signal != 0) || since.errors > 0) return false;
  if (suspect.installs) return true;
  constexpr int kUncaught = 1;
  if (suspect.status && suspect.status->code != kUncaught && !suspect.status->ok()) {
    return since.words + since.other_words == 0;
  }
  if (!traceback->looks_uncaught) {
    return since.words == 0 && since.other_words <= kFewWords && !since.trained;
  }
  if (suspect.shares_streams) return true;
  return since.other_bytes <= kBuffered &&
         (since.words == 0 || (since.words <= kFewWords && !since.trained));
}

/// Its words say so: the handler of C++ ends in abort(). mpirun has the rank's code then, and does
/// not always tell which rank it was.
bool aborted_in_terminate(const ProgramEnd& end, const ProcessRecord& record) {
  return end.is_mpirun && end.status.code == 128 + SIGABRT &&
         std::ranges::any_of(record.telling(), [](const std::string& line) {
           return line.starts_with("terminate called");
         });
}

/// Nobody's lines are the program's own where ranks have tags of their own.
Suspect program_of(const ProgramEnd& end, const ProcessRecord& record) {
  const int signal = ending_signal(end);
  const ExitStatus status = signal != 0 ? ExitStatus{.code = 0, .signal = signal} : end.status;
  return {.record = &record,
          .status = end.is_mpirun ? std::nullopt : std::optional(status),
          .installs = end.installs};
}

std::vector<Suspect> suspects(const ProgramEnd& end, const OutputRecord& record) {
  const auto& first = record.reports().first();
  const bool is_torchruns = record.reports().is_torchruns();
  std::vector<Suspect> result;
  for (const auto& [rank, process] : record.processes()) {
    Suspect suspect = rank == OutputRecord::kNoRank ? program_of(end, process)
                                                    : Suspect{.rank = rank, .record = &process};
    if (first && rank == first->rank) suspect.status = first->status;
    if (!suspect.status && aborted_in_terminate(end, process)) {
      suspect.status = ExitStatus{.code = 0, .signal = SIGABRT};
    }
    if (is_torchruns && rank == OutputRecord::kNoRank) {
      suspect.shares_streams = true;
      suspect.status.reset();
      if (first) {
        suspect.status = first->status;
        suspect.rank = first->rank;
      }
    }
    result.push_back(suspect);
  }
  std::ranges::stable_sort(result, {}, [&](const Suspect& one) {
    const Traceback* const traceback = one.record->traceback();
    const bool is_consequence = traceback != nullptr && blames_another_rank(traceback->exception());
    return std::tuple(is_consequence, !(first && one.rank == first->rank),
                      one.record->traceback_order());
  });
  return result;
}

/// As many of the last ones as a message has room for.
std::string lines_of(const std::deque<std::string>& lines) {
  constexpr std::size_t kRoom = 400;
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!text.empty() && text.size() + line->size() >= kRoom) break;
    text = text.empty() ? *line : *line + "\n" + text;
  }
  return text;
}

void append_earlier(std::string& context, const ProcessRecord& record) {
  const Traceback* const traceback = record.traceback();
  if (traceback == nullptr || traceback->exception().empty()) return;
  if (!context.empty()) context += '\n';
  context += fmt::format("earlier: {}", traceback->exception());
}

bool comes_from_outside(int signal) {
  constexpr int kOwn[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  return signal != 0 && std::ranges::find(kOwn, signal) == std::end(kOwn);
}

void append(std::vector<std::string>& errors, const std::deque<std::string>& more) {
  errors.insert(errors.end(), more.rbegin(), more.rend());
}

/// The cause of the end of a process that left no traceback of it.
Cause told_by_words(const Suspect& suspect) {
  const ProcessRecord& record = *suspect.record;
  std::deque<std::string> words = record.last_words();
  Cause cause{.rank = suspect.rank};
  cause.signal = suspect.status ? suspect.status->signal : 0;
  append(cause.errors, record.errors());
  append(cause.errors, words);
  cause.context = lines_of(words);
  const bool has_error = !record.errors().empty() && (suspect.installs || record.ends_with_error());
  const Traceback* const report = record.report();
  const std::string child = report != nullptr ? end_in_report(report->exception()) : "";
  const Traceback* const block = record.traceback();
  const bool ends_with_block =
      block != nullptr && block->exception().empty() && record.since_traceback().words == 0;
  const bool has_rank = suspect.rank != OutputRecord::kNoRank;
  if (comes_from_outside(cause.signal)) {
    cause.headline = "killed by " + signal_words(cause.signal);
  } else if (!record.telling().empty()) {
    cause.headline = lines_of(record.telling());
    cause.context.clear();
  } else if (has_error) {
    const std::string& error = suspect.installs && record.quotes_program() ? record.errors().front()
                                                                           : record.errors().back();
    std::erase(words, error);
    cause.headline = smp::trimmed(error);
    cause.context = lines_of(words);
  } else if (report != nullptr && !child.empty()) {
    cause.headline = "a program that the script started ended: " + child;
    if (words.empty()) cause.context = report->exception();
  } else if (cause.signal != 0) {
    cause.headline = "killed by " + signal_words(cause.signal);
  } else if (ends_with_block) {
    cause.traceback = block;
    return cause;
  } else if (has_rank && suspect.status) {
    cause.headline = fmt::format("exit code {}", suspect.status->code);
    if (!words.empty()) cause.headline += ": " + cause.context;
    cause.context.clear();
  } else if (!words.empty()) {
    cause.headline = std::exchange(cause.context, "");
  } else if (report != nullptr) {
    cause.headline = report->exception();
  }
  append_earlier(cause.context, record);
  return cause;
}

Cause lost_host(const OutputRecord& record, const std::vector<Suspect>& all) {
  Cause cause{.headline =
                  fmt::format("host {} is lost: mpirun has no connection to it any more; its "
                              "container was stopped or its machine failed, see its log",
                              record.reports().lost_host())};
  if (!all.empty()) append_earlier(cause.context, *all.front().record);
  return cause;
}

}  // namespace

int ending_signal(const ProgramEnd& end) {
  if (end.status.signal != 0) return end.status.signal;
  constexpr int kUsual[] = {SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM};
  const int number = end.status.code - 128;
  const bool is_usual = std::ranges::find(kUsual, number) != std::end(kUsual);
  return is_usual && !end.is_mpirun ? number : 0;
}

Cause find_cause(const ProgramEnd& end, const OutputRecord& record) {
  const std::vector<Suspect> all = suspects(end, record);
  const auto ended = std::ranges::find_if(all, ended_by_traceback);
  const auto& first = record.reports().first();
  const bool is_consequence =
      ended == all.end() || blames_another_rank(ended->record->traceback()->exception());
  if (!record.reports().lost_host().empty() && is_consequence) return lost_host(record, all);

  const bool first_has_one = first && std::ranges::any_of(all, [&](const Suspect& one) {
                               return one.rank == first->rank && ended_by_traceback(one);
                             });
  if (ended != all.end() && (!first || first_has_one)) {
    Cause cause{.rank = ended->rank, .traceback = ended->record->traceback()};
    cause.errors = cause.traceback->causes;
    cause.errors.emplace_back(cause.traceback->exception());
    append(cause.errors, ended->record->errors());
    cause.signal = ending_signal(end);
    return cause;
  }
  if (first) {
    static const ProcessRecord silent;
    Suspect suspect{.rank = first->rank, .record = &silent, .status = first->status};
    for (const Suspect& one : all) {
      if (one.rank == first->rank) suspect = one;
    }
    return told_by_words(suspect);
  }
  // Ranks that nobody named: the one whose words look most like a cause.
  const auto speaks = std::ranges::find_if(all, [&](const Suspect& one) {
    const bool is_launchers = end.is_mpirun && one.rank == OutputRecord::kNoRank;
    return !is_launchers && (!one.record->telling().empty() || !one.record->errors().empty());
  });
  if (speaks != all.end()) return told_by_words(*speaks);
  if (end.is_mpirun && !record.reports().first_box().empty()) {
    return {.headline = record.reports().first_box()};
  }
  Cause cause;
  if (!all.empty()) {
    cause = told_by_words(all.front());
  } else if (const int signal = ending_signal(end); signal != 0) {
    cause = {.headline = "killed by " + signal_words(signal), .signal = signal};
  }
  if (cause.headline.empty() && cause.traceback == nullptr) {
    cause.headline = "it ended without having written anything";
  }
  return cause;
}

std::vector<RankTraceback> tracebacks(const OutputRecord& record) {
  std::vector<RankTraceback> result;
  for (const Suspect& one : suspects({}, record)) {
    if (const Traceback* traceback = one.record->traceback()) {
      result.push_back({.rank = one.rank, .traceback = traceback});
    }
  }
  return result;
}

std::optional<std::string> hidden_error(const OutputRecord& record, const std::string& script) {
  for (const auto& [rank, process] : record.processes()) {
    const Suspect suspect{.rank = rank, .record = &process, .status = ExitStatus{}};
    const Traceback* const traceback = process.traceback();
    if (traceback == nullptr || !traceback->looks_uncaught || !ended_by_traceback(suspect)) {
      continue;
    }
    const std::string file = std::filesystem::path(script).filename().string();
    const bool is_its_own = !file.empty() && traceback->lines.size() > 1 &&
                            traceback->lines[1].find(file + "\"") != std::string::npos;
    if (!is_its_own) return std::string(traceback->exception());
  }
  return std::nullopt;
}

}  // namespace entrypoint
