// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/helper_child.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include <sys/prctl.h>
#include <unistd.h>

#include "entrypoint/launch/process/spawn.h"
#include "smp_runtime/core/error.h"

namespace entrypoint::supervise {
namespace {

[[noreturn]] void run_helper(const launch::HelperProcess& helper, int result_fd) {
  int code = 0;
  std::string text;
  try {
    text = helper.work();
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

HelperChild start_helper(const launch::HelperProcess& helper,
                         const std::function<void()>& in_child) {
  launch::Pipe result = launch::make_pipe();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    throw smp::HostError("cannot start \"{}\": fork: {}", helper.name, std::strerror(errno));
  }
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    in_child();
    run_helper(helper, result.write.get());
  }
  setpgid(child, child);
  return {.pid = child, .result = std::move(result.read)};
}

}  // namespace entrypoint::supervise
