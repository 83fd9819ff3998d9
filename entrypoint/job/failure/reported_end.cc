// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/reported_end.h"

#include <algorithm>
#include <array>
#include <utility>

#include "entrypoint/job/failure/line_kinds.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::size_t kLongestBox = 2000;  // [bytes]

bool is_made_of(std::string_view line, char c) {
  constexpr std::size_t kShortest = 8;
  return line.size() >= kShortest && std::ranges::all_of(line, [c](char d) { return d == c; });
}

std::optional<int> number_after(std::string_view text, std::string_view mark) {
  const std::size_t position = text.find(mark);
  if (position == std::string_view::npos) return std::nullopt;
  text.remove_prefix(position + mark.size());
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ')));
  return smp::leading_number<int>(text);
}

ExitStatus from_python(int code) {
  return code < 0 ? ExitStatus{.code = 0, .signal = -code} : ExitStatus{.code = code, .signal = 0};
}

}  // namespace

bool EndReports::add(std::string_view line) {
  note_lost_host(line);
  add_to_box(line);
  return add_torchruns(line) || add_mpiruns(line) || in_box_;
}

void EndReports::name(int rank) {
  if (!first_) first_ = ReportedEnd{.rank = rank, .status = std::nullopt};
}

/// The table:
///     ========
///     train.py FAILED
///     --------
///     Failures:
///       <NO_OTHER_FAILURES>
///     --------
///     Root Cause (first observed failure):
///     [0]:
///       time      : …
///       rank      : 1 (local_rank: 1)
///       exitcode  : -9 (pid: 123)
///       error_file: <N/A>
///       traceback : Signal 9 (SIGKILL) received by PID 123
///     ========
bool EndReports::add_torchruns(std::string_view line) {
  if (line.starts_with("torch.distributed.elastic.multiprocessing.errors.ChildFailedError")) {
    is_torchruns_ = true;
    table_ = Table::kOthers;
    return true;
  }
  if (table_ == Table::kNone || table_ == Table::kDone) return false;
  if (line.starts_with("Root Cause (first observed failure)")) table_ = Table::kRootCause;
  if (table_ != Table::kRootCause) return true;
  if (is_made_of(line, '=')) table_ = Table::kDone;
  const std::string_view text = smp::trimmed(line);
  if (text.starts_with("rank ")) {
    if (const auto rank = number_after(text, ":")) name(*rank);
  }
  if (text.starts_with("exitcode ") && first_ && !first_->status) {
    if (const auto code = number_after(text, ":")) first_->status = from_python(*code);
  }
  return true;
}

/// Open MPI 4 says it in one line, 5 in two:
///     mpirun noticed that process rank 2 with PID 0 on node algo-1 exited on signal 9 (Killed).
///     prterun noticed that process rank 2 with PID 40 on node algo-1 exited on
///     signal 9 (Killed).
bool EndReports::add_mpiruns(std::string_view line) {
  if (const auto rank = number_after(line, "MPI_ABORT was invoked on rank ")) {
    name(*rank);
    return true;
  }
  if (const auto rank = number_after(line, "run noticed that process rank ")) {
    name(*rank);
    signal_follows_ = first_->rank == *rank && !first_->status && line.ends_with(" exited on");
    const auto signal = number_after(line, "exited on signal ");
    if (signal && first_->rank == *rank && !first_->status) {
      first_->status = ExitStatus{.code = 0, .signal = *signal};
    }
    return true;
  }
  if (std::exchange(signal_follows_, false)) {
    if (const auto signal = number_after(line, "signal ")) {
      first_->status = ExitStatus{.code = 0, .signal = *signal};
      return true;
    }
  }
  // "Process name: [[5219,1],2]"; Open MPI 5: "Process name: [prterun-algo-1-18@1,2]".
  for (const std::string_view mark : {"Process name: [[", "Process name: [prterun-"}) {
    const std::size_t at = line.find(mark);
    const std::size_t comma = line.rfind(',');
    if (at == std::string_view::npos || comma == std::string_view::npos) continue;
    if (const auto rank = number_after(line.substr(comma), ",")) name(*rank);
    return true;
  }
  // The rank is in the line before.
  for (const std::string_view mark : {"  Exit code:", "with errorcode ", "  Errorcode: "}) {
    const auto code = number_after(line, mark);
    if (!code || !first_) continue;
    if (!first_->status) first_->status = ExitStatus{.code = *code, .signal = 0};
    return true;
  }
  return line.find("exited on signal ") != std::string_view::npos;
}

void EndReports::add_to_box(std::string_view line) {
  if (!is_mpiruns_) return;
  constexpr std::size_t kRule = 74;  // Open MPI's show_help
  if (line.size() == kRule && is_made_of(line, '-')) {
    box_done_ = box_done_ || (in_box_ && !first_box_.empty());
    in_box_ = !in_box_;
    return;
  }
  if (!in_box_ || box_done_ || first_box_.size() + line.size() > kLongestBox) return;
  if (!first_box_.empty()) first_box_ += '\n';
  first_box_ += line;
}

/// mpirun says what happened in one line and names the hosts in others:
///     ORTE has lost communication with a remote daemon.
///       HNP daemon   : [[46031,0],0] on node algo-1
///       Remote daemon: [[46031,0],1] on node algo-2
/// Open MPI 5 writes PRTE, and [prterun-algo-1-7@0,1].
void EndReports::note_lost_host(std::string_view line) {
  if (line.find("RTE has lost communication with a remote daemon") != std::string_view::npos) {
    daemon_lost_ = true;
  }
  if (!daemon_lost_ || !lost_host_.empty()) return;
  constexpr std::string_view kNode = " on node ";
  const std::size_t node = line.find(kNode);
  if (line.find("Remote daemon: [") == std::string_view::npos || node == std::string_view::npos) {
    return;
  }
  line.remove_prefix(node + kNode.size());
  lost_host_ = line.substr(0, line.find_first_of(" \t"));
}

}  // namespace entrypoint
