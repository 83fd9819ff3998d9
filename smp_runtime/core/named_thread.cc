// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/named_thread.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace smp {
namespace {

/// Limit on processes of this process's cgroup: a number, "max", or "unknown".
std::string process_limit_of_cgroup() {
  const std::filesystem::path root = "/sys/fs/cgroup";
  // Version 2 has the one line "0::/PATH", whose path is often that of the machine in a container.
  const std::string membership = read_text("/proc/self/cgroup");
  const size_t path = membership.rfind("0::/");
  std::string own;
  if (path != std::string::npos) own = membership.substr(path + 4);
  own = own.substr(0, own.find('\n'));
  for (const auto& folder : {root / own, root, root / "pids"}) {
    const std::string limit = read_text(folder / "pids.max");
    if (!limit.empty()) return limit.substr(0, limit.find('\n'));
  }
  return "unknown";
}

std::string process_limit_of_user() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit.rlim_cur);
}

}  // namespace

std::thread named_thread(const char* name, std::function<void()> body) {
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw HostError(
        "no thread \"{}\" could be made: {}; there is a limit of processes and threads (pids.max "
        "of the container: {}; ulimit -u: {}); raise it, or start fewer processes and workers here",
        name, error.code().message(), process_limit_of_cgroup(), process_limit_of_user());
  }
  pthread_setname_np(thread.native_handle(), std::string(name).substr(0, 15).c_str());
  return thread;
}

}  // namespace smp
