// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/failure_text.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "opt_ml_layout/outputs.h"

namespace entrypoint::supervise {
namespace {

using opt_ml::utf8_prefix;

// Shares of the 1024 bytes; the rest is for the fixed words around them.
constexpr std::size_t kMessageBytes = 500;
constexpr std::size_t kHeadlineBytes = 340;
constexpr std::size_t kExtraBytes = 150;
constexpr std::size_t kCommandBytes = 260;
constexpr std::size_t kDetailTracebacks = 8;
constexpr std::size_t kTailLines = 40;

std::string cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  return std::string(utf8_prefix(text, limit - 3)) + "...";
}

std::string speaker(int rank, const std::function<std::string(int)>& host_of) {
  if (rank == OutputRecord::kNoRank) return {};
  const std::string host = host_of(rank);
  return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} on {}", rank, host);
}

// The exception with as many of its innermost frames as fit.
std::string message_of(const OutputRecord::RankTraceback& found,
                       const std::function<std::string(int)>& host_of) {
  const std::vector<std::string>& lines = found.traceback->lines;
  const std::string_view exception = found.traceback->exception();
  const std::string who = speaker(found.rank, host_of);
  const std::string_view what =
      exception.empty() ? std::string_view("a traceback that was cut off") : exception;
  std::string message =
      cut(who.empty() ? std::string(what) : fmt::format("{}: {}", who, what), kHeadlineBytes);
  std::string frames;
  const std::size_t end = lines.size() - (exception.empty() ? 0 : 1);
  for (std::size_t i = end; i > 1; --i) {
    const std::string& line = lines[i - 1];
    if (message.size() + frames.size() + line.size() + 1 > kMessageBytes) break;
    frames.insert(0, "\n" + line);
  }
  return message + frames;
}

// No traceback: the cause is most likely in a telling line, else in the last words.
std::string message_without_traceback(const OutputRecord& record) {
  const auto& telling = record.telling_lines();
  const auto& err = record.lines(StreamKind::kErr);
  const auto& out = record.lines(StreamKind::kOut);
  const auto& source = !telling.empty() ? telling : !err.empty() ? err : out;
  std::string message;
  for (auto line = source.rbegin(); line != source.rend(); ++line) {
    if (message.empty()) {
      message = cut(*line, kMessageBytes);
    } else if (message.size() + line->size() + 1 <= kMessageBytes) {
      message.insert(0, *line + "\n");
    } else {
      break;
    }
  }
  return message;
}

std::string signal_words(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal)
                         : fmt::format("SIG{} (signal {})", name, signal);
}

std::string extra_info(const Failure& failure) {
  const int signal = failure.status.signal != 0 ? failure.status.signal
                     : failure.status.code > 128 && failure.status.code < 128 + NSIG
                         ? failure.status.code - 128
                         : 0;
  if (failure.stop_signal != 0) {
    return fmt::format("The job was asked to stop by {}", signal_words(failure.stop_signal));
  }
  if (signal == SIGKILL) {
    if (failure.out_of_memory.value_or(true)) {
      return fmt::format("OutOfMemory: Process killed by SIGKILL (signal 9){}",
                         failure.out_of_memory ? "; the container's memory was used up" : "");
    }
    return "Process killed by SIGKILL (signal 9); the kernel did not report that memory ran out";
  }
  return signal != 0 ? "Process killed by " + signal_words(signal) : std::string{};
}

void append_lines(std::string& text, std::string_view heading, const std::deque<std::string>& lines,
                  std::size_t count) {
  if (lines.empty()) return;
  text += fmt::format("\n{}:\n", heading);
  const std::size_t first = lines.size() - std::min(count, lines.size());
  for (std::size_t i = first; i < lines.size(); ++i) text += lines[i] + "\n";
}

}  // namespace

std::string failure_text(const Failure& failure, const OutputRecord& record,
                         const std::function<std::string(int rank)>& host_of) {
  const auto tracebacks = record.tracebacks();
  const std::string message = tracebacks.empty() ? message_without_traceback(record)
                                                 : message_of(tracebacks.front(), host_of);

  std::string text = fmt::format("{}:\nExitCode {}\nErrorMessage \"{}\"\n", failure.error_class,
                                 failure.status.failure_code(), message);
  const std::string extra = extra_info(failure);
  if (!extra.empty()) text += fmt::format("ExtraInfo \"{}\"\n", cut(extra, kExtraBytes));
  text += fmt::format("Command \"{}\"\n", cut(failure.command, kCommandBytes));

  if (failure.command.size() > kCommandBytes) {
    text += fmt::format("\nThe whole command:\n{}\n", failure.command);
  }
  std::size_t shown = 0;
  for (const auto& [rank, traceback] : tracebacks) {
    if (++shown > kDetailTracebacks) {
      text += fmt::format("\n{} more ranks ended with a traceback.\n",
                          tracebacks.size() - kDetailTracebacks);
      break;
    }
    const std::string who = speaker(rank, host_of);
    text += fmt::format("\nTraceback{}{}:\n", who.empty() ? "" : " of ", who);
    for (const std::string& line : traceback->lines) text += line + "\n";
  }
  append_lines(text, "Telling lines", record.telling_lines(), OutputRecord::kTellingLines);
  append_lines(text, "Last lines of stderr", record.lines(StreamKind::kErr), kTailLines);
  append_lines(text, "Last lines of stdout", record.lines(StreamKind::kOut), kTailLines / 4);
  return std::string(utf8_prefix(text, kLongestFailureText));
}

}  // namespace entrypoint::supervise
