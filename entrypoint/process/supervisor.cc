// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/supervisor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "entrypoint/process/process_tree.h"
#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {

namespace {

constexpr std::size_t kCollectLimit = 64 * 1024;
// A process that ended may leave children that hold its pipes open; their last words count, but
// nobody waits for daemons.
constexpr std::chrono::milliseconds kDrainAfterExit{300};
// The same while our own reader is slow and output waits in the pipes.
constexpr std::chrono::seconds kDrainAfterExitHeldBack{10};

// A job leads a background process group: reading the terminal would stop it.
FileDescriptor standard_input_for_child() {
  if (isatty(STDIN_FILENO) == 0) return {};
  return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// CloudWatch makes metrics of lines that are such an object and nothing else.
bool is_embedded_metric(std::string_view line) { return line.starts_with(R"({"_aws")"); }

}  // namespace

struct Supervisor::Child {
  pid_t pid = 0;
  Output output = Output::kCollect;
  std::vector<StopStep> on_stop;
  std::size_t next_step = 0;
  bool forwards_user_signals = false;
  int sigusr1_as = SIGUSR1;

  std::array<FileDescriptor, 2> pipes;  // by StreamKind
  std::array<std::unique_ptr<LineStream>, 2> lines;
  std::array<std::unique_ptr<RankLines>, 2> ranks;  // of an mpirun: what `lines` feeds
  std::string collected;

  std::optional<ExitStatus> exited;
  Clock::time_point exited_at;
  bool finished = false;

  [[nodiscard]] bool is_running() const { return !exited.has_value(); }
  [[nodiscard]] bool is_drained() const { return !pipes[0].is_open() && !pipes[1].is_open(); }

  /// First those of `lines`, which feed those of `ranks`.
  template <typename Use>
  void for_each_reader(const Use& use) const {
    for (const auto& reader : lines) {
      if (reader) use(*reader);
    }
    for (const auto& reader : ranks) {
      if (reader) use(*reader);
    }
  }
};

Supervisor::Supervisor(Streams streams) : out_(streams.out), err_(streams.err) {
  if (getpid() != 1) prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Supervisor::~Supervisor() {
  for (const Process& process : descendants(getpid())) {
    kill(process.pid, SIGKILL);
  }
  for (const auto& [id, child] : children_) {
    if (child->is_running()) wait_for(child->pid);
  }
  if (getpid() != 1) prctl(PR_SET_CHILD_SUBREAPER, 0);
}

ChildId Supervisor::add(std::unique_ptr<Child> child) {
  const ChildId id = next_id_++;
  for (const FileDescriptor& pipe : child->pipes) {
    if (pipe.is_open()) fcntl(pipe.get(), F_SETFL, fcntl(pipe.get(), F_GETFL) | O_NONBLOCK);
  }
  children_.emplace(id, std::move(child));
  return id;
}

void Supervisor::stream_to(Child& child, StreamKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  if (!tags_.has_ranks()) {
    child.lines[index] =
        std::make_unique<LineStream>([this, kind](std::string_view piece, bool starts_line) {
          show(kind, nullptr, piece, starts_line);
        });
    return;
  }
  child.ranks[index] = std::make_unique<RankLines>(
      tags_.end(), [this, kind](const RankTag* tag, std::string_view piece, bool starts_line) {
        if (tag == nullptr) tags_.learn(piece);
        show(kind, tag, piece, starts_line);
      });
  child.lines[index] = std::make_unique<LineStream>(
      [ranks = child.ranks[index].get()](std::string_view piece, bool) {
        ranks->append(piece, Clock::now());
      });
}

void Supervisor::show(StreamKind kind, const RankTag* tag, std::string_view piece,
                      bool starts_line) {
  const std::optional<std::string> masked = mask_ ? mask_(piece) : std::nullopt;
  if (masked) piece = *masked;
  if (watcher_) watcher_(kind, tag, piece);
  std::string& open_tag = open_tags_[static_cast<std::size_t>(kind)];
  OutputSink& sink = kind == StreamKind::kErr && !merge_ ? err_ : out_;
  const std::string text = tag != nullptr ? tag->text() : std::string{};
  // Somebody else may have spoken since this line was begun.
  const bool begins = tag != nullptr && (starts_line || open_tag != text);
  if (begins && !is_embedded_metric(piece)) sink.write(tags_.rewrite(*tag));
  sink.write(piece);
  open_tag = piece.ends_with('\n') || piece.ends_with('\r') ? std::string{} : text;
}

ChildId Supervisor::start(const Command& command) {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  const FileDescriptor in = standard_input_for_child();
  auto child = std::make_unique<Child>();
  child->output = command.output;
  child->on_stop = command.on_stop;
  child->forwards_user_signals = command.forwards_user_signals;
  child->sigusr1_as = command.sigusr1_as;
  child->pid = spawn({.argv = command.argv,
                      .environment = command.environment,
                      .working_directory = command.working_directory,
                      .in = in.get(),
                      .out = out.write.get(),
                      .err = err.write.get(),
                      .ignored_signals = command.ignored_signals});
  child->pipes = {std::move(out.read), std::move(err.read)};
  if (command.output == Output::kStream) {
    stream_to(*child, StreamKind::kOut);
    stream_to(*child, StreamKind::kErr);
  }
  return add(std::move(child));
}

ChildId Supervisor::start(const HelperProcess& helper) {
  HelperChild started =
      fork_helper(helper.name, helper.work, [this] { signals_.leave_to_child(); });
  auto child = std::make_unique<Child>();
  child->pid = started.pid;
  child->pipes[0] = std::move(started.result);
  return add(std::move(child));
}

Wake Supervisor::wait(Deadline deadline) {
  while (true) {
    finish_children();
    // Before the caller logs anything: lines come out in the order in which they were made.
    out_.flush();
    err_.flush();
    if (stop_unreported_) {
      stop_unreported_ = false;
      return Wake::kStopRequested;
    }
    // Output of a process comes out before its end is told; a stuck reader may not hold that up for
    // long.
    const Deadline drained_by = last_end_ + kDrainAfterExitHeldBack;
    const bool drains = end_unreported_ && has_pending_output() && Clock::now() < drained_by;
    if (end_unreported_ && !drains) {
      end_unreported_ = false;
      return Wake::kChildEnded;
    }
    if (user_signal_unreported_) {
      user_signal_unreported_ = false;
      return Wake::kUserSignal;
    }
    if (Clock::now() >= deadline) return Wake::kDeadline;
    pump(drains ? std::min(deadline, drained_by) : deadline);
  }
}

pid_t Supervisor::pid(ChildId id) const { return children_.at(id)->pid; }

std::optional<ExitStatus> Supervisor::ended(ChildId id) const {
  const Child& child = *children_.at(id);
  return child.finished ? child.exited : std::nullopt;
}

std::string Supervisor::collected(ChildId id) const { return children_.at(id)->collected; }

void Supervisor::send(ChildId id, int signal) {
  const Child& child = *children_.at(id);
  if (child.is_running()) kill(-child.pid, signal);
}

Deadline Supervisor::drain_limit(const Child& child) const {
  if (is_held_back()) return child.exited_at + kDrainAfterExitHeldBack;
  return child.exited_at + kDrainAfterExit;
}

Deadline Supervisor::next_event(Deadline deadline) const {
  for (const auto& [id, child] : children_) {
    child->for_each_reader(
        [&deadline](const auto& reader) { deadline = std::min(deadline, reader.due()); });
    if (child->exited && !child->finished) deadline = std::min(deadline, drain_limit(*child));
    if (child->is_running() && stop_signal_ != 0 && child->next_step < child->on_stop.size()) {
      deadline = std::min(deadline, stopped_at_ + child->on_stop[child->next_step].after);
    }
  }
  return deadline;
}

/// One round of the loop. False when nothing happened before `deadline`.
bool Supervisor::pump(Deadline deadline) {
  std::vector<pollfd> ready = {{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
  for (const OutputSink* sink : {&out_, &err_}) {
    ready.push_back({.fd = sink->has_pending() ? sink->fd() : -1, .events = POLLOUT, .revents = 0});
  }
  struct Source {
    Child* child;
    StreamKind kind;
  };
  std::vector<Source> sources;
  const bool held_back = is_held_back();
  for (const auto& [id, child] : children_) {
    for (const StreamKind kind : {StreamKind::kOut, StreamKind::kErr}) {
      const FileDescriptor& pipe = child->pipes[static_cast<std::size_t>(kind)];
      if (!pipe.is_open() || (held_back && child->output == Output::kStream)) continue;
      sources.push_back({.child = child.get(), .kind = kind});
      ready.push_back({.fd = pipe.get(), .events = POLLIN, .revents = 0});
    }
  }

  const int count = poll(ready.data(), ready.size(), poll_timeout(next_event(deadline)));
  if (count < 0 && errno != EINTR) throw smp::HostError("poll: {}", std::strerror(errno));
  // Before the signals: what was written before an end comes out before the end is noticed.
  for (std::size_t i = 0; i < sources.size() && count > 0; ++i) {
    if (ready[i + 3].revents != 0) read_from(*sources[i].child, sources[i].kind);
  }
  if (count > 0 && ready[0].revents != 0) take_signals();
  out_.flush();
  err_.flush();
  const Clock::time_point now = Clock::now();
  for (const auto& [id, child] : children_) {
    child->for_each_reader([now](auto& reader) { reader.flush_aged(now); });
  }
  run_stop_steps();
  return count > 0;
}

void Supervisor::take_signals() {
  while (const std::optional<int> signal = signals_.next()) take_signal(*signal);
}

void Supervisor::take_signal(int signal) {
  if (signal == SIGCHLD) {
    reap();
    return;
  }
  const bool stops = is_stop_signal(signal);
  SMP_LOG(info, "received SIG{}", sigabbrev_np(signal));
  if (stops) {
    stop_unreported_ = true;
    if (stop_signal_ == 0) {
      stop_signal_ = signal;
      stopped_at_ = Clock::now();
      return;
    }
  }
  const bool taken = forward(signal, stops);
  if (stops || taken) return;
  user_signal_ = signal;
  user_signal_unreported_ = true;
}

// False when nobody takes it.
bool Supervisor::forward(int signal, bool stops) {
  bool taken = false;
  for (const auto& [id, child] : children_) {
    if (!child->is_running()) continue;
    const bool passes =
        stops ? !child->on_stop.empty() && child->on_stop.front().signal == StopStep::kForward
              : child->forwards_user_signals;
    if (!passes) continue;
    kill(-child->pid, signal == SIGUSR1 ? child->sigusr1_as : signal);
    taken = true;
  }
  return taken;
}

void Supervisor::reap() {
  int status = 0;
  while (true) {
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    for (const auto& [id, child] : children_) {
      if (child->pid != pid || !child->is_running()) continue;
      child->exited = from_wait_status(status);
      child->exited_at = Clock::now();
    }
  }
}

void Supervisor::read_from(Child& child, StreamKind kind) {
  FileDescriptor& pipe = child.pipes[static_cast<std::size_t>(kind)];
  std::array<char, 64 * 1024> buffer{};
  const ssize_t count = read(pipe.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    pipe.close();
    return;
  }
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
  if (const auto& lines = child.lines[static_cast<std::size_t>(kind)]) {
    lines->append(bytes, Clock::now());
    return;
  }
  child.collected.append(bytes);
  if (child.collected.size() > kCollectLimit) {
    child.collected.erase(0, child.collected.size() - kCollectLimit);
  }
}

void Supervisor::run_stop_steps() {
  if (stop_signal_ == 0) return;
  const Clock::time_point now = Clock::now();
  for (const auto& [id, child] : children_) {
    while (child->is_running() && child->next_step < child->on_stop.size() &&
           now >= stopped_at_ + child->on_stop[child->next_step].after) {
      const int wanted = child->on_stop[child->next_step++].signal;
      kill(-child->pid, wanted == StopStep::kForward ? stop_signal_ : wanted);
    }
  }
}

void Supervisor::finish_children() {
  const Clock::time_point now = Clock::now();
  for (const auto& [id, child] : children_) {
    if (child->finished || !child->exited) continue;
    // No writers left, or they had their time.
    if (!child->is_drained() && now < drain_limit(*child)) continue;
    for (FileDescriptor& pipe : child->pipes) pipe.close();
    child->for_each_reader([](auto& reader) { reader.finish(); });
    child->finished = true;
    end_unreported_ = true;
    last_end_ = now;
  }
}

std::vector<LeftProcess> Supervisor::left_processes() const {
  std::vector<pid_t> ours;
  for (const auto& [id, child] : children_) ours.push_back(child->pid);
  return entrypoint::left_processes(getpid(), ours);
}

void Supervisor::sweep(std::chrono::milliseconds grace) {
  const auto signal_all = [](int signal) {
    bool any = false;
    for (const Process& process : descendants(getpid())) {
      if (process.zombie) continue;
      any |= kill(process.pid, signal) == 0;
      if (signal == SIGTERM) kill(process.pid, SIGCONT);
    }
    return any;
  };
  const auto wait_for_all = [this](Deadline deadline) {
    while (Clock::now() < deadline) {
      pump(std::min(deadline, Clock::now() + std::chrono::milliseconds(20)));
      if (std::ranges::all_of(descendants(getpid()), &Process::zombie)) break;
    }
    reap();
  };
  if (signal_all(SIGTERM)) wait_for_all(Clock::now() + grace);
  if (signal_all(SIGKILL)) wait_for_all(Clock::now() + std::chrono::seconds(1));
  reap();
  finish_children();
  drain_sinks();
}

void Supervisor::drain_sinks() {
  const Deadline deadline = Clock::now() + std::chrono::seconds(1);
  while (has_pending_output() && Clock::now() < deadline) pump(deadline);
}

}  // namespace entrypoint
