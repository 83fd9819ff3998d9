// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/ssh_keys.h"

#include <algorithm>

#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace entrypoint {
namespace {

constexpr std::string_view kTypes[] = {"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
                                       "ecdsa-sha2-nistp521", "ssh-rsa"};
constexpr std::size_t kLongestKey = 2048;  // [bytes] of base64; RSA with 8192 bits has 1400
constexpr std::chrono::seconds kKeygenLimit{30};

bool is_base64(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
         c == '/' || c == '=';
}

Completed keygen(std::vector<std::string> arguments, std::span<const std::string> environment) {
  arguments.insert(arguments.begin(), "ssh-keygen");
  return run_command(
      {.argv = std::move(arguments), .environment = {environment.begin(), environment.end()}},
      kKeygenLimit);
}

}  // namespace

std::optional<std::string> parse_public_key(std::string_view line) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const std::string_view type = line.substr(0, blank);
  if (std::ranges::find(kTypes, type) == std::end(kTypes)) return std::nullopt;
  std::string_view body = line.substr(blank + 1);
  body = body.substr(0, body.find_first_of(" \r\n"));
  if (body.size() < 16 || body.size() > kLongestKey || !std::ranges::all_of(body, is_base64)) {
    return std::nullopt;
  }
  return std::string(type) + " " + std::string(body);
}

std::string make_key(const std::filesystem::path& private_file,
                     std::span<const std::string> environment) {
  const Completed done =
      keygen({"-q", "-t", "ed25519", "-N", "", "-C", "smp-train", "-f", private_file.string()},
             environment);
  const auto key = parse_public_key(smp::read_text(private_file.string() + ".pub"));
  if (!done.status.ok() || !key) {
    throw smp::HostError(
        "ssh-keygen made no key (exit {}): {}; a job on several hosts needs "
        "openssh-client and a user that /etc/passwd knows",
        done.status.failure_code(), done.output);
  }
  return *key;
}

std::string public_key_of(const std::filesystem::path& private_file,
                          std::span<const std::string> environment) {
  const Completed done = keygen({"-y", "-P", "", "-f", private_file.string()}, environment);
  const auto key = parse_public_key(done.output);
  if (!done.status.ok() || !key) {
    throw smp::ConfigError(
        "{} is not a private key that can be used without a passphrase, with mode 0600: {}",
        private_file.string(), done.output);
  }
  return *key;
}

}  // namespace entrypoint
