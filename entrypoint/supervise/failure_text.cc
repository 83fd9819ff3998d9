// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/failure_text.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "entrypoint/supervise/script_advice.h"
#include "entrypoint/supervise/traceback_collector.h"
#include "opt_ml_layout/outputs.h"

namespace entrypoint::supervise {
namespace {

using opt_ml::utf8_prefix;

// Shares of the 1024 bytes; the rest is for the fixed words around them.
constexpr std::size_t kMessageBytes = 500;
constexpr std::size_t kHeadlineBytes = 340;  // of it: the exception, before the place
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

// Whether `text` quotes what an exception says: "cannot read f: KeyError: 'a'" does "KeyError:
// 'a'".
bool quotes(std::string_view text, std::string_view exception) {
  const std::size_t colon = exception.find(": ");
  return colon != std::string_view::npos && colon + 2 < exception.size() &&
         text.find(exception.substr(colon + 2)) != std::string_view::npos;
}

// What led to the exception where that does not say so itself, the exception with its text, and as
// many of the innermost frames as fit.
std::string message_of(const OutputRecord::RankTraceback& found,
                       const std::function<std::string(int)>& host_of) {
  const Traceback& traceback = *found.traceback;
  const std::size_t text_begin = traceback.lines.size() - traceback.text_lines;
  std::string what;
  if (traceback.text_lines == 0) what = "a traceback that was cut off";
  for (std::size_t i = text_begin; i < traceback.lines.size(); ++i) {
    what += (i == text_begin ? "" : "\n") + traceback.lines[i];
  }
  for (auto cause = traceback.causes.rbegin(); cause != traceback.causes.rend(); ++cause) {
    if (!quotes(what, *cause)) what.insert(0, *cause + "\nled to ");
  }
  const std::string who = speaker(found.rank, host_of);
  std::string message = cut(who.empty() ? what : fmt::format("{}: {}", who, what), kHeadlineBytes);
  std::string frames;
  for (std::size_t i = text_begin; i > 1; --i) {
    const std::string& line = traceback.lines[i - 1];
    if (message.size() + frames.size() + line.size() + 1 > kMessageBytes) break;
    frames.insert(0, "\n" + line);
  }
  return message + frames;
}

// "SyntaxError: …" has no traceback; pip and many tools say "ERROR: …".
bool is_error_line(std::string_view line) {
  if (line.starts_with("ERROR:") || line.starts_with("error:") || line.starts_with("Error:")) {
    return true;
  }
  const std::string_view name = line.substr(0, line.find(':'));
  return names_exception(line) && (name.ends_with("Error") || name.ends_with("Exception"));
}

// Without mpirun's tag.
std::string_view untagged(std::string_view line) {
  const auto tag = parse_rank_tag(line);
  return line.substr(tag ? tag->length : 0);
}

// As many of the last lines as fit, in their order.
template <typename Lines>
std::string tail_of(const Lines& lines, std::size_t limit) {
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (text.empty()) {
      text = cut(*line, limit);
    } else if (text.size() + line->size() + 1 <= limit) {
      text.insert(0, *line + "\n");
    } else {
      break;
    }
  }
  return text;
}

std::string headline_over(const std::string& headline, const std::string& context) {
  const std::string lead = cut(headline, kHeadlineBytes);
  if (context.empty() || context == headline) return lead;
  return lead + "\n" + cut(context, kMessageBytes - std::min(kMessageBytes - 4, lead.size() + 1));
}

// The rank that ended first has no traceback of its own, so those of others are no cause.
std::string message_of_blamed(const OutputRecord& record,
                              const std::function<std::string(int)>& host_of) {
  std::string end;
  for (const std::string& line : record.telling_lines()) {
    if (line.find("exited on signal") != std::string::npos) end = line;
  }
  const std::string who = speaker(record.blamed_rank(), host_of);
  return headline_over(
      fmt::format("{} ended first, without a traceback{}{}", who, end.empty() ? "" : ": ", end),
      tail_of(record.last_words(record.blamed_rank()), kMessageBytes / 2));
}

// What only one rank says, as the terminate handler of C++ does: the rank once, in front.
std::string told_by_rank(const std::vector<std::string>& lines,
                         const std::function<std::string(int)>& host_of) {
  const auto rank_of = [](const std::string& line) {
    const auto tag = parse_rank_tag(line);
    return tag ? tag->rank : OutputRecord::kNoRank;
  };
  const int rank = rank_of(lines.front());
  const bool is_one =
      std::ranges::all_of(lines, [&](const std::string& line) { return rank_of(line) == rank; });
  if (!is_one || rank == OutputRecord::kNoRank) return tail_of(lines, kMessageBytes);
  std::vector<std::string> words;
  for (const std::string& line : lines) words.emplace_back(untagged(line));
  return cut(fmt::format("{}: {}", speaker(rank, host_of), tail_of(words, kMessageBytes)),
             kMessageBytes);
}

std::string message_without_traceback(const OutputRecord& record,
                                      const std::function<std::string(int)>& host_of) {
  const auto& err = record.lines(StreamKind::kErr);
  const auto& out = record.lines(StreamKind::kOut);
  std::vector<std::string> causes;
  std::ranges::remove_copy_if(record.telling_lines(), std::back_inserter(causes),
                              OutputRecord::is_mpiruns);
  if (!causes.empty()) return told_by_rank(causes, host_of);
  const auto error = std::find_if(err.rbegin(), err.rend(), [](const std::string& line) {
    return is_error_line(untagged(line));
  });
  if (error != err.rend()) return headline_over(*error, tail_of(err, kMessageBytes / 2));
  if (!record.telling_lines().empty()) return tail_of(record.telling_lines(), kMessageBytes);
  if (err.empty() && out.empty()) return "it ended without having written anything";
  return tail_of(err.empty() ? out : err, kMessageBytes);
}

std::string message_of(const OutputRecord& record,
                       const std::vector<OutputRecord::RankTraceback>& tracebacks,
                       const std::function<std::string(int)>& host_of) {
  const bool is_consequence =
      tracebacks.empty() || blames_another_rank(tracebacks.front().traceback->exception());
  if (!record.lost_host().empty() && is_consequence) {
    return headline_over(
        fmt::format("host {} is lost: mpirun has no connection to it any more; its "
                    "container was stopped or its machine failed, see its log",
                    record.lost_host()),
        tracebacks.empty() ? "" : message_of(tracebacks.front(), host_of));
  }
  const int blamed = record.blamed_rank();
  const bool has_words = blamed != OutputRecord::kNoRank && !record.last_words(blamed).empty();
  const bool blamed_has_one =
      std::ranges::any_of(tracebacks, [blamed](const auto& found) { return found.rank == blamed; });
  if (!tracebacks.empty() && blamed != OutputRecord::kNoRank && !blamed_has_one) {
    return message_of_blamed(record, host_of);
  }
  if (!tracebacks.empty()) return message_of(tracebacks.front(), host_of);
  const std::string message = message_without_traceback(record, host_of);
  if (!has_words || !OutputRecord::is_mpiruns(message)) return message;
  std::vector<std::string> words;
  for (const std::string& line : record.last_words(blamed)) words.emplace_back(untagged(line));
  const std::string who = speaker(blamed, host_of);
  return headline_over(fmt::format("{}: {}", who, tail_of(words, kHeadlineBytes)), message);
}

// "smdistributed.modelparallel.torch.exceptions.SMPStepError: …" is an SMPStepError.
std::string error_class_of(const Failure& failure,
                           const std::vector<OutputRecord::RankTraceback>& tracebacks) {
  if (tracebacks.empty() || failure.error_class != Failure{}.error_class) {
    return failure.error_class;
  }
  const std::string_view exception = tracebacks.front().traceback->exception();
  const std::string_view name = exception.substr(0, exception.find(':'));
  for (const std::string_view library : {"smdistributed.", "smdebug.", "tensorflow."}) {
    if (library == "smdebug." && !failure.debugger) continue;
    if (name.starts_with(library)) return std::string(name.substr(name.rfind('.') + 1));
  }
  return failure.error_class;
}

std::string signal_words(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal)
                         : fmt::format("SIG{} (signal {})", name, signal);
}

// The signal that ended the program, or 0. Shells and mpirun say 128 + N, but mpirun also
// ends with 131 for reasons of its own, which is no SIGQUIT, and a script may end with any code.
int ending_signal(const launch::ExitStatus& status, const OutputRecord& record) {
  if (status.signal != 0) return status.signal;
  constexpr int kUsual[] = {SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGTERM};
  const int number = status.code - 128;
  if (number <= 0 || number >= NSIG) return 0;
  if (std::ranges::find(kUsual, number) != std::end(kUsual)) return number;
  const std::string said = fmt::format("exited on signal {} ", number);
  const bool confirmed = std::ranges::any_of(record.telling_lines(), [&](const std::string& line) {
    return (line + " ").find(said) != std::string::npos;
  });
  return confirmed ? number : 0;
}

std::string cause_from_outside(const Failure& failure, const OutputRecord& record) {
  const int signal = ending_signal(failure.status, record);
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

// For the first failing rank's exception or what it was raised from; without one, for the script's
// last words.
std::string advice_for(const Failure& failure, const OutputRecord& record,
                       const std::vector<OutputRecord::RankTraceback>& tracebacks) {
  std::vector<std::string> errors;
  if (tracebacks.empty()) {
    for (const std::string& line : record.lines(StreamKind::kErr)) {
      errors.emplace_back(untagged(line));
    }
  } else {
    errors = tracebacks.front().traceback->causes;
    errors.emplace_back(tracebacks.front().traceback->exception());
  }
  for (const std::string& error : errors) {
    if (std::string advice = script_advice(error, failure.channels); !advice.empty()) return advice;
  }
  return {};
}

std::string extra_info(const Failure& failure, const OutputRecord& record,
                       const std::vector<OutputRecord::RankTraceback>& tracebacks) {
  std::vector<std::string> parts;
  if (!failure.full_disks.empty()) parts.push_back("Disk full: " + failure.full_disks);
  for (std::string part :
       {cause_from_outside(failure, record), advice_for(failure, record, tracebacks)}) {
    if (!part.empty()) parts.push_back(std::move(part));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
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
  const std::string message = message_of(record, tracebacks, host_of);

  std::string text =
      fmt::format("{}:\nExitCode {}\nErrorMessage \"{}\"\n", error_class_of(failure, tracebacks),
                  failure.status.failure_code(), message);
  const std::string extra = extra_info(failure, record, tracebacks);
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
