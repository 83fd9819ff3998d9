// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/ssh_client.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {

void check_host_name(std::string_view host) {
  const auto is_alphanumeric = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 && static_cast<unsigned char>(c) < 128;
  };
  const bool good = !host.empty() && host.size() <= 253 && is_alphanumeric(host.front()) &&
                    std::ranges::all_of(host, [&](char c) {
                      return is_alphanumeric(c) || c == '.' || c == '-' || c == '_';
                    });
  if (!good) {
    throw smp::ConfigError(
        "resourceconfig.json: \"{}\" is no host name; expected letters, digits, dots, dashes and "
        "underscores, and a letter or digit first",
        host);
  }
}

std::string ssh_config_text(const SshClientSettings& settings) {
  const std::string folder = settings.folder.string();
  std::string text = "Host *\n";
  text += fmt::format("Port {}\n", settings.port);
  text += fmt::format("User {}\n", settings.user);
  text += fmt::format("IdentityFile {}/job_key\n", folder);
  text += fmt::format("UserKnownHostsFile {}/known_hosts/%n\n", folder);
  text +=
      "IdentitiesOnly yes\n"
      "IdentityAgent none\n"
      "GlobalKnownHostsFile /dev/null\n"
      "StrictHostKeyChecking yes\n"
      "UpdateHostKeys no\n"
      "CheckHostIP no\n"
      "BatchMode yes\n"
      "PreferredAuthentications publickey\n"
      "ClearAllForwardings yes\n"
      "ForwardAgent no\n"
      "ForwardX11 no\n"
      "RequestTTY no\n"
      "ConnectTimeout 5\n"
      "ServerAliveInterval 5\n"
      "ServerAliveCountMax 3\n"
      "LogLevel ERROR\n";
  return text;
}

std::string known_host_line(std::string_view host, int port, std::string_view public_key) {
  constexpr int kPlainPort = 22;
  return port == kPlainPort ? fmt::format("{} {}\n", host, public_key)
                            : fmt::format("[{}]:{} {}\n", host, port, public_key);
}

std::vector<std::string> ssh_command(const std::filesystem::path& config) {
  return {"ssh", "-F", config.string()};
}

Completed run_on_host(const std::filesystem::path& config, std::string_view host,
                      std::string_view command, const std::vector<std::string>& environment,
                      std::chrono::milliseconds limit, std::string_view input) {
  std::vector<std::string> argv = ssh_command(config);
  argv.insert(argv.end(), {"-x", "-T", std::string(host), std::string(command)});
  return run_command({.argv = std::move(argv), .environment = environment}, limit, input);
}

}  // namespace entrypoint
