// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/sshd.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/ranges.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

/// Makes what sshd needs to serve as root, an empty folder, and checks that there are other users
/// to change to.
void prepare_root() {
  long inside = 0, outside = 0, count = 0;
  std::ifstream users("/proc/self/uid_map");
  if (users >> inside >> outside >> count && count == 1 && !(users >> inside)) {
    throw smp::ConfigError(
        "root is user id {} of this machine here, and alone in its user namespace, where sshd "
        "cannot serve as root; start the container as that user (pyxis: srun "
        "--no-container-remap-root)",
        outside);
  }
  // Only a boot would make it.
  if (mkdir("/run/sshd", 0755) != 0 && errno != EEXIST) {
    throw smp::HostError("/run/sshd: {}; sshd needs this folder, mount a tmpfs on /run",
                         std::strerror(errno));
  }
}

/// Options by which one address gets some of the room for connections that have not proved
/// themselves, and not all; none for an sshd before OpenSSH 8.5, which refuses them.
std::vector<std::string> source_limit(const std::filesystem::path& program,
                                      const std::filesystem::path& config,
                                      const std::vector<std::string>& environment) {
  constexpr std::chrono::seconds kLimit{10};
  std::vector<std::string> option = {"-o", "PerSourceMaxStartups=16"};
  std::vector<std::string> argv = {program.string(), "-t", "-f", config.string()};
  argv.insert(argv.end(), option.begin(), option.end());
  const Completed tried =
      run_command({.argv = std::move(argv), .environment = environment}, kLimit);
  return tried.status.ok() ? option : std::vector<std::string>{};
}

}  // namespace

std::string sshd_config_text(const SshdSettings& settings) {
  std::string text = fmt::format("Port {}\n", settings.port);
  for (const std::string& address : settings.listen_addresses) {
    text += fmt::format("ListenAddress {}\n", address);
  }
  const std::string folder = settings.folder.string();
  text += fmt::format("HostKey {}/host_key\n", folder);
  text += fmt::format("AuthorizedKeysFile {}/authorized_keys\n", folder);
  text += fmt::format("AllowUsers {}\n", settings.user);
  // On one line, for only the first SetEnv counts.
  text += fmt::format("SetEnv {}={}", kFolderVariable, folder);
  for (const std::string& entry : settings.session_environment) text += " " + entry;
  text += "\n";
  // StrictModes would refuse a folder below /tmp; ours is 0700 and made by us.
  // All hosts look at the master's port every few seconds; strangers get no more room than that.
  text += fmt::format("MaxStartups {}\n", 64 + 4 * settings.hosts);
  text +=
      "StrictModes no\n"
      "PidFile none\n"
      "UsePAM no\n"
      "PermitRootLogin prohibit-password\n"
      "PubkeyAuthentication yes\n"
      "AuthenticationMethods publickey\n"
      "PasswordAuthentication no\n"
      "KbdInteractiveAuthentication no\n"
      "DisableForwarding yes\n"
      "PermitTTY no\n"
      "PermitUserEnvironment no\n"
      "PermitUserRC no\n"
      "PrintMotd no\n"
      "PrintLastLog no\n"
      "UseDNS no\n"
      "MaxSessions 64\n"
      "LoginGraceTime 30\n"
      "LogLevel ERROR\n";
  return text;
}

std::vector<std::string> session_environment(const std::vector<std::string>& environment) {
  std::vector<std::string> result;
  for (const char* name : {"PATH", "LD_LIBRARY_PATH"}) {
    const std::string_view value = value_of(environment, name);
    // Folders that sshd's own quoting would have to be tried on are left to mpirun's options.
    const bool is_plain = value.find_first_of(" \t\r\n\"'\\#") == std::string_view::npos;
    if (!value.empty() && is_plain) result.push_back(fmt::format("{}={}", name, value));
  }
  return result;
}

std::string authorized_key_line(std::string_view public_key,
                                const std::vector<std::string>& addresses) {
  const std::string from =
      addresses.empty() ? "" : fmt::format(",from=\"{}\"", fmt::join(addresses, ","));
  return fmt::format("restrict{} {}\n", from, public_key);
}

int default_ssh_port() {
  constexpr int kSshPort = 22;
  constexpr int kUnprivilegedPort = 2222;
  if (geteuid() == 0) return kSshPort;
  int first_free = 1024;
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> first_free;
  return first_free <= kSshPort ? kSshPort : kUnprivilegedPort;
}

tcp::Listener listen_at_ssh_port(const std::vector<std::string>& addresses, int port) {
  try {
    return {addresses, port};
  } catch (const smp::HostError& error) {
    throw smp::HostError("{}; is another sshd running here?", error.what());
  }
}

std::string current_user() {
  const passwd* entry = getpwuid(geteuid());
  if (entry == nullptr) {
    throw smp::ConfigError(
        "user id {} has no entry in /etc/passwd, and ssh works for no user without a name; a job "
        "on several hosts must run as a user that the image knows, such as root",
        geteuid());
  }
  return entry->pw_name;
}

std::filesystem::path find_sshd(std::string_view path) {
  // sshd insists on an absolute path to itself, for it starts itself again for each connection.
  const std::filesystem::path usual = "/usr/sbin/sshd";
  return access(usual.c_str(), X_OK) == 0 ? usual : find_program("sshd", path);
}

ChildId start_sshd(ProcessRunner& runner, const LaunchFolder& folder, const JobSettings& job,
                   int hosts) {
  const std::filesystem::path program = find_sshd(value_of(job.inherited, "PATH"));
  if (program.empty()) {
    throw smp::ConfigError(
        "no sshd in /usr/sbin or on PATH; a job on several hosts needs it: install openssh-server");
  }
  if (geteuid() == 0) prepare_root();
  const SshdSettings settings{.folder = folder.path(),
                              .port = job.ssh_port,
                              .user = current_user(),
                              .listen_addresses = job.listen_addresses,
                              .hosts = hosts,
                              .session_environment = session_environment(job.inherited)};
  const auto config = folder.write("sshd_config", sshd_config_text(settings));
  std::vector<std::string> argv = {program.string(), "-D", "-e", "-f", config.string()};
  const std::vector<std::string> limit = source_limit(program, config, job.inherited);
  argv.insert(argv.end(), limit.begin(), limit.end());
  return runner.start(
      Command{.name = "sshd", .argv = std::move(argv), .environment = job.inherited});
}

}  // namespace entrypoint
