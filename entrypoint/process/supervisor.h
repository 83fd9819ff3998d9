// SPDX-License-Identifier: Apache-2.0
// The duties of a PID 1: one loop that takes signals, moves output, reaps what ends and ends what
// was asked to stop.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "entrypoint/process/process_runner.h"
#include "entrypoint/process/process_tree.h"
#include "entrypoint/process/rank_lines.h"
#include "entrypoint/process/rank_tags.h"
#include "entrypoint/process/signal_file.h"
#include "entrypoint/process/streams.h"

namespace entrypoint {

/// Make it before the first fork and before any thread: it blocks SIGTERM, SIGINT, SIGHUP, SIGUSR1,
/// SIGUSR2 and SIGCHLD, which from then on only its loop consumes (but a SIGHUP that was ignored,
/// as under nohup), ignores SIGPIPE, and adopts orphans (child subreaper when it is not PID 1). One
/// object per process at a time. Its destructor kills what still runs and puts signals back.
class Supervisor final : public ProcessRunner {
 public:
  /// Destinations of streamed output. The descriptors stay the caller's.
  struct Streams {
    int out = STDOUT_FILENO;
    int err = STDERR_FILENO;
  };

  Supervisor() : Supervisor(Streams{}) {}
  explicit Supervisor(Streams streams);
  ~Supervisor() override;
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// The job's stderr goes to our stdout (SM_LAUNCH_MERGE).
  void merge_streams(bool merge) { merge_ = merge; }
  /// Lines of programs that are started from now on are those of these ranks, where mpirun's tags
  /// say so.
  void set_rank_tags(RankTags tags) { tags_ = std::move(tags); }
  /// What stands in the place of a piece of a line, for the watcher, too; nothing: the piece
  /// itself.
  using Mask = std::function<std::optional<std::string>(std::string_view piece)>;
  void mask_output(Mask mask) { mask_ = std::move(mask); }
  /// Gets each piece of a line that is streamed, and the tag of its rank where it has one. It must
  /// live as long as this, and be fast.
  using Watcher = std::function<void(StreamKind, const RankTag* tag, std::string_view piece)>;
  void watch_output(Watcher watcher) { watcher_ = std::move(watcher); }

  ChildId start(const Command& command) override;
  ChildId start(const HelperProcess& helper) override;
  Wake wait(Deadline deadline) override;
  [[nodiscard]] pid_t pid(ChildId child) const override;
  [[nodiscard]] std::optional<ExitStatus> ended(ChildId child) const override;
  [[nodiscard]] std::string collected(ChildId child) const override;
  void send(ChildId child, int signal) override;
  [[nodiscard]] int stop_signal() const override { return stop_signal_; }
  [[nodiscard]] int user_signal() const override { return user_signal_; }

  /// Processes that the script left behind, our own children apart.
  [[nodiscard]] std::vector<LeftProcess> left_processes() const;

  /// Ends every process below us: SIGTERM, after `grace` SIGKILL. Blocks for at most `grace` and
  /// two seconds.
  void sweep(std::chrono::milliseconds grace);

  [[nodiscard]] const RankTags& rank_tags() const { return tags_; }

 private:
  struct Child;

  ChildId add(std::unique_ptr<Child> child);
  void stream_to(Child& child, StreamKind kind);
  void show(StreamKind kind, const RankTag* tag, std::string_view piece, bool starts_line);
  bool pump(Deadline deadline);
  [[nodiscard]] bool has_pending_output() const { return out_.has_pending() || err_.has_pending(); }
  [[nodiscard]] bool is_held_back() const { return out_.is_full() || err_.is_full(); }
  [[nodiscard]] Deadline drain_limit(const Child& child) const;
  [[nodiscard]] Deadline next_event(Deadline deadline) const;
  void take_signals();
  void take_signal(int signal);
  bool forward(int signal, bool stops);
  void reap();
  void read_from(Child& child, StreamKind kind);
  void run_stop_steps();
  void finish_children();
  void drain_sinks();

  OutputSink out_;
  OutputSink err_;
  bool merge_ = false;
  RankTags tags_{{}, 1};
  std::array<std::string, 2> open_tags_;  ///< by StreamKind: whose unfinished line was shown last
  Mask mask_;
  Watcher watcher_;

  SignalFile signals_;
  std::map<ChildId, std::unique_ptr<Child>> children_;
  ChildId next_id_ = 1;

  int stop_signal_ = 0;
  Clock::time_point stopped_at_;
  int user_signal_ = 0;
  bool stop_unreported_ = false;
  bool user_signal_unreported_ = false;
  bool end_unreported_ = false;
  Clock::time_point last_end_;
};

}  // namespace entrypoint
