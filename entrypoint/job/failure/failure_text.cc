// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/failure_text.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "entrypoint/job/failure/cause.h"
#include "entrypoint/job/failure/line_kinds.h"
#include "opt_ml_layout/outputs.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
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

// True if `text` quotes the message of an exception: "cannot read f: KeyError: 'a'" quotes
// "KeyError: 'a'".
bool quotes(std::string_view text, std::string_view exception) {
  const std::size_t colon = exception.find(": ");
  return colon != std::string_view::npos && colon + 2 < exception.size() &&
         text.find(exception.substr(colon + 2)) != std::string_view::npos;
}

std::string said_by(const std::string& who, const std::string& what) {
  return who.empty() ? what : fmt::format("{}: {}", who, what);
}

// The cause of the exception, where the exception does not name it, the exception with its text,
// and as many of the innermost frames as fit.
std::string message_of(const std::string& who, const Traceback& traceback) {
  const std::size_t text_begin = traceback.lines.size() - traceback.text_lines;
  std::string what;
  if (traceback.text_lines == 0) what = "a traceback that was cut off";
  for (std::size_t i = text_begin; i < traceback.lines.size(); ++i) {
    what += (i == text_begin ? "" : "\n") + traceback.lines[i];
  }
  for (auto cause = traceback.causes.rbegin(); cause != traceback.causes.rend(); ++cause) {
    if (!quotes(what, *cause)) what.insert(0, *cause + "\nled to ");
  }
  std::string message = cut(said_by(who, what), kHeadlineBytes);
  std::string frames;
  for (std::size_t i = text_begin; i > 1; --i) {
    const std::string& line = traceback.lines[i - 1];
    if (message.size() + frames.size() + line.size() + 1 > kMessageBytes) break;
    frames.insert(0, "\n" + line);
  }
  return message + frames;
}

// As many of the last lines of `text` as fit.
std::string tail_of(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  const std::size_t line = text.find('\n', text.size() - limit);
  return line == std::string_view::npos ? cut(text, limit) : std::string(text.substr(line + 1));
}

std::string message_of(const Cause& cause, const std::function<std::string(int)>& host_of) {
  const std::string who = speaker(cause.rank, host_of);
  if (cause.traceback != nullptr) return message_of(who, *cause.traceback);
  const bool repeats = cause.context.empty() || cause.context == cause.headline;
  if (repeats) return cut(said_by(who, cause.headline), kMessageBytes);
  const std::string lead = cut(said_by(who, cause.headline), kHeadlineBytes);
  constexpr std::size_t kLeast = 4;
  return lead + "\n" +
         tail_of(cause.context, kMessageBytes - std::min(kMessageBytes - kLeast, lead.size() + 1));
}

// "smdistributed.modelparallel.torch.exceptions.SMPStepError: …" is an SMPStepError.
std::string error_class_of(const Failure& failure, const Cause& cause) {
  if (cause.traceback == nullptr || failure.error_class != Failure{}.error_class) {
    return failure.error_class;
  }
  const std::string_view exception = cause.traceback->exception();
  const std::string_view name = exception.substr(0, exception.find(':'));
  for (const std::string_view library : {"smdistributed.", "smdebug.", "tensorflow."}) {
    if (library == "smdebug." && !failure.debugger) continue;
    if (name.starts_with(library)) return std::string(name.substr(name.rfind('.') + 1));
  }
  return failure.error_class;
}

std::string cause_from_outside(const Failure& failure, const Cause& cause) {
  if (failure.stop_signal != 0) {
    return fmt::format("The job was asked to stop by {}", signal_words(failure.stop_signal));
  }
  if (cause.signal == SIGKILL) {
    if (failure.out_of_memory.value_or(true)) {
      return fmt::format("OutOfMemory: Process killed by SIGKILL (signal 9){}",
                         failure.out_of_memory ? "; the container's memory was used up" : "");
    }
    return "Process killed by SIGKILL (signal 9); the kernel did not report that memory ran out";
  }
  if (cause.signal == 0) return {};
  std::string text = "Process killed by " + signal_words(cause.signal);
  if (cause.signal == SIGBUS && !failure.shared_memory.empty()) {
    text += "; " + failure.shared_memory;
  }
  return text;
}

bool installs(const Failure& failure) { return failure.error_class.starts_with("Install"); }

std::string advice_for(const Failure& failure, const Cause& cause) {
  for (const std::string& error : cause.errors) {
    if (std::string advice = script_advice({.error = error,
                                            .said = fmt::to_string(fmt::join(cause.errors, "\n")),
                                            .channels = failure.channels,
                                            .installs = installs(failure),
                                            .module = failure.module});
        !advice.empty()) {
      return advice;
    }
  }
  return {};
}

std::string extra_info(const Failure& failure, const Cause& cause) {
  std::vector<std::string> parts;
  if (!failure.full_disks.empty()) parts.push_back("Disk full: " + failure.full_disks);
  for (std::string part : {cause_from_outside(failure, cause), advice_for(failure, cause)}) {
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

constexpr std::string_view kNoGpu =
    "This machine has no GPU: ask torch.cuda.is_available() first, or set SMP_CPU=1 to debug on "
    "CPUs";
constexpr std::string_view kPortTaken =
    "Another program listens at the port where the ranks meet: set MASTER_PORT to a free one";
constexpr std::array kKnown = {
    std::pair<std::string_view, std::string_view>{"Found no NVIDIA driver", kNoGpu},
    std::pair<std::string_view, std::string_view>{"Torch not compiled with CUDA enabled", kNoGpu},
    std::pair<std::string_view, std::string_view>{
        "initialize the default process group twice",
        "smp.init() has initialised torch.distributed: leave init_process_group out, or call it "
        "first"},
    std::pair<std::string_view, std::string_view>{
        "environment variable RANK expected, but not set",
        "mpirun sets no RANK: import smdistributed.dataparallel.torch.torch_smddp first, which "
        "does, or start with torchrun"},
    std::pair<std::string_view, std::string_view>{
        "Unknown c10d backend type SMDDP",
        "import smdistributed.dataparallel.torch.torch_smddp before init_process_group(\"smddp\")"},
    std::pair<std::string_view, std::string_view>{
        "error while loading shared libraries:",
        "The program's loader does not find that library: build it with the library's folder as "
        "RPATH, or set LD_LIBRARY_PATH"},
    std::pair<std::string_view, std::string_view>{"EADDRINUSE", kPortTaken},
    std::pair<std::string_view, std::string_view>{"ddress already in use", kPortTaken},
};

std::string channel_advice(std::string_view error, const std::vector<std::string>& channels) {
  if (!error.starts_with("KeyError: 'SM_CHANNEL_")) return {};
  if (channels.empty()) return "The job has no channels: --channel NAME=DIR gives it one";
  return fmt::format("The job's channels are {}", fmt::join(channels, ", "));
}

std::string_view behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  return at == std::string_view::npos ? std::string_view{} : text.substr(at + mark.size());
}

/// True if a word, the value of a flag, is left over that no unknown name stands before.
bool leaves_value(std::string_view words) {
  bool after_name = false;
  for (const std::string& word : smp::split(words, ' ')) {
    if (word.empty()) continue;
    const bool is_name = word.starts_with('-');
    if (!is_name && !after_name) return true;
    after_name = is_name;
  }
  return false;
}

/// Hyperparameters arrive as `--name value`, each.
std::string argument_advice(const ScriptError& error) {
  constexpr std::string_view kFlag =
      "A flag takes no value: declare it with action=argparse.BooleanOptionalAction or a type that "
      "reads True and False";
  const std::string_view left = behind(error.error, "error: unrecognized arguments: ");
  // click and typer; argparse for --flag=value.
  for (const std::string_view mark :
       {"Got unexpected extra argument", "ignored explicit argument", "does not take a value"}) {
    if (error.error.find(mark) != std::string_view::npos) return std::string(kFlag);
  }
  const bool is_unknown = !left.empty() || error.error.find("No such option: ") == 0 ||
                          error.error.find("Error: No such option") != std::string_view::npos;
  if (!is_unknown) return {};
  if (error.said.find("[overrides") != std::string_view::npos) {
    return "Hydra takes key=value: set SM_LAUNCH_ARGS=overrides, which sends hyperparameters so";
  }
  if (leaves_value(left)) return std::string(kFlag);
  return "Hyperparameters are arguments of the script: add them, or use parser.parse_known_args()";
}

std::string relative_import_advice(const std::string& module) {
  if (!module.empty()) {
    return fmt::format("Start it as a module of its package: set sagemaker_program to -m {}",
                       module);
  }
  return "A script is of no package: write import NAME, or put it into a package and set "
         "sagemaker_program to -m PACKAGE.NAME";
}

}  // namespace

std::string failure_text(const Failure& failure, const OutputRecord& record,
                         const std::function<std::string(int rank)>& host_of) {
  const Cause cause = find_cause(
      {.status = failure.status, .is_mpirun = failure.is_mpirun, .installs = installs(failure)},
      record);
  const std::vector<RankTraceback> tracebacks = entrypoint::tracebacks(record);

  std::string text =
      fmt::format("{}:\nExitCode {}\nErrorMessage \"{}\"\n", error_class_of(failure, cause),
                  failure.status.failure_code(), message_of(cause, host_of));
  const std::string extra = extra_info(failure, cause);
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

std::string script_advice(const ScriptError& error) {
  if (error.installs && error.error.find("No module named ") != std::string_view::npos) {
    return "pip builds in isolation from the image's packages: give a wheel, install it in the "
           "image, or set PIP_NO_BUILD_ISOLATION=0 (0: no isolation)";
  }
  const auto known = std::ranges::find_if(kKnown, [&](const auto& one) {
    return error.error.find(one.first) != std::string_view::npos;
  });
  if (known != kKnown.end()) return std::string(known->second);
  if (error.error.find("attempted relative import") != std::string_view::npos) {
    return relative_import_advice(error.module);
  }
  std::string advice = argument_advice(error);
  return advice.empty() ? channel_advice(error.error, error.channels) : advice;
}

}  // namespace entrypoint
