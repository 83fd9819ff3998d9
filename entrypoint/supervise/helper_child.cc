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
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(result_fd, text.data() + done, text.size() - done);
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
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
