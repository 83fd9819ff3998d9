// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/spawn.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::size_t kOutputLimit = 64 * 1024;

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Runs in the child: only async-signal-safe calls from here to exec.
void reset_signals(const std::vector<int>& ignored) {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  for (const int signal : ignored) ::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool use_as(int fd, int target) {
  if (fd < 0) return true;
  if (fd == target) return fcntl(fd, F_SETFD, 0) == 0;
  return dup2(fd, target) >= 0;
}

[[noreturn]] void report_and_exit(int report_fd) {
  const int error = errno;
  // If the parent is gone too, nobody is left to tell.
  [[maybe_unused]] const ssize_t written = write(report_fd, &error, sizeof(error));
  _exit(127);
}

[[noreturn]] void run_work(const std::function<std::string()>& work, int result_fd) {
  int code = 0;
  std::string text;
  try {
    text = work();
  } catch (const std::exception& error) {
    text = error.what();
    code = 1;
  }
  // If the parent is gone, nobody is left to tell.
  [[maybe_unused]] const int error = smp::write_all(result_fd, text);
  // No destructors and no atexit: all of that is the parent's.
  _exit(code);
}

}  // namespace

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw smp::HostError("cannot make a pipe: {}; raise the limit on open files (ulimit -n)",
                         std::strerror(errno));
  }
  return Pipe{.read = FileDescriptor(ends[0]), .write = FileDescriptor(ends[1])};
}

std::string_view value_of(std::span<const std::string> environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
      return std::string_view(entry).substr(name.size() + 1);
    }
  }
  return {};
}

std::vector<std::string> current_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

std::filesystem::path launcher_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

std::filesystem::path find_program(std::string_view name, std::string_view path) {
  if (name.find('/') != std::string_view::npos) return name;
  if (path.empty()) path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& folder : smp::split(path, ':')) {
    const std::filesystem::path file = std::filesystem::path(folder.empty() ? "." : folder) / name;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(file, ignored) && access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return {};
}

pid_t spawn(const SpawnRequest& request) {
  SMP_CHECK(!request.argv.empty(), "spawn needs a program");
  const std::string_view path = value_of(request.environment, "PATH");
  const std::filesystem::path program = find_program(request.argv.front(), path);
  if (program.empty()) {
    throw smp::ConfigError("program \"{}\" is not on PATH ({}); install it or correct PATH",
                           request.argv.front(), path);
  }
  const std::vector<char*> argv = pointers(request.argv);
  const std::vector<char*> environment = pointers(request.environment);
  Pipe report = make_pipe();
  const pid_t parent = getpid();

  const pid_t pid = fork();
  if (pid < 0) {
    throw smp::HostError("cannot start {}: fork: {}; the limit on processes or memory is reached",
                         request.argv.front(), std::strerror(errno));
  }
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // the parent died before the line above
    reset_signals(request.ignored_signals);
    if (!use_as(request.in, STDIN_FILENO) || !use_as(request.out, STDOUT_FILENO) ||
        !use_as(request.err, STDERR_FILENO)) {
      report_and_exit(report.write.get());
    }
    if (!request.working_directory.empty() && chdir(request.working_directory.c_str()) != 0) {
      report_and_exit(report.write.get());
    }
    execve(program.c_str(), argv.data(), environment.data());
    report_and_exit(report.write.get());
  }

  setpgid(pid, pid);  // also here: a signal sent before the child ran must find the group
  report.write.close();
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(report.read.get(), &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return pid;  // closed by exec: it runs

  wait_for(pid);
  constexpr const char* kMessage = "cannot start \"{}\" in {}: {}{}";
  const std::string folder =
      request.working_directory.empty() ? "." : request.working_directory.string();
  if (error == ENOENT || error == EACCES || error == ENOEXEC || error == ENOTDIR) {
    throw smp::ConfigError(kMessage, program.string(), folder, std::strerror(error),
                           "; check that the file, its interpreter and the folder exist and may "
                           "be executed");
  }
  throw smp::HostError(
      kMessage, program.string(), folder, std::strerror(error),
      error == E2BIG ? "; one argument or variable is over 128 KiB, or all together over ARG_MAX"
                     : "");
}

HelperChild fork_helper(const std::string& name, const std::function<std::string()>& work,
                        const std::function<void()>& in_child) {
  Pipe result = make_pipe();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    throw smp::HostError("cannot start \"{}\": fork: {}", name, std::strerror(errno));
  }
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    in_child();
    run_work(work, result.write.get());
  }
  setpgid(child, child);
  return {.pid = child, .result = std::move(result.read)};
}

ExitStatus from_wait_status(int status) {
  if (WIFSIGNALED(status)) return ExitStatus{.code = 0, .signal = WTERMSIG(status)};
  return ExitStatus{.code = WEXITSTATUS(status), .signal = 0};
}

ExitStatus wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) throw smp::InternalError("waitpid({}): {}", pid, std::strerror(errno));
  }
  return from_wait_status(status);
}

Completed run_command(SpawnRequest request, std::chrono::milliseconds limit,
                      std::string_view input) {
  const smp::Deadline deadline = smp::Clock::now() + limit;
  SMP_CHECK(input.size() <= 32 * 1024, "{} bytes would block a pipe nobody reads", input.size());
  Pipe to_child = make_pipe();
  Pipe from_child = make_pipe();
  request.in = to_child.read.get();
  request.out = request.err = from_child.write.get();
  const pid_t pid = spawn(request);
  to_child.read.close();
  from_child.write.close();

  // Fits into the pipe's buffer. A helper may end without reading it: in a job Supervisor has that
  // signal ignored.
  [[maybe_unused]] const ssize_t written = write(to_child.write.get(), input.data(), input.size());
  to_child.write.close();

  Completed completed;
  std::array<char, 4096> buffer{};
  while (true) {
    const int left = smp::poll_timeout(deadline);
    if (left == 0) {
      completed.timed_out = true;
      kill(-pid, SIGKILL);
      break;
    }
    pollfd ready{.fd = from_child.read.get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, left) <= 0) continue;  // the deadline decides
    const ssize_t size = read(from_child.read.get(), buffer.data(), buffer.size());
    if (size <= 0) break;
    const std::size_t room = kOutputLimit - completed.output.size();
    completed.output.append(buffer.data(), std::min(room, static_cast<std::size_t>(size)));
  }
  // It may close its output early and live on.
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (smp::Clock::now() >= deadline) {
      completed.timed_out = true;
      kill(-pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    poll(nullptr, 0, 2);
  }
  completed.status = from_wait_status(status);
  return completed;
}

}  // namespace entrypoint
