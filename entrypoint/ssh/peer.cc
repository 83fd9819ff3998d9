// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/ssh/peer.h"

#include <algorithm>

#include <poll.h>

#include "entrypoint/ssh/key_exchange.h"
#include "entrypoint/ssh/ssh_client.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/tcp.h"

namespace entrypoint {
namespace {

constexpr std::chrono::seconds kConnect{5};
constexpr std::chrono::seconds kBanner{5};
constexpr std::chrono::seconds kLogin{15};
constexpr std::chrono::seconds kFirstWord{15};
constexpr std::chrono::seconds kNextWord{60};
constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{1000};

// Between two tries of something that the other side has to become ready for. Grows, so that a
// quick start stays quick and a slow one costs nothing.
class Pause {
 public:
  void take(Deadline deadline) {
    poll(nullptr, 0, poll_timeout(std::min(Clock::now() + next_, deadline)));
    next_ = std::min(next_ * 2, kLongestPause);
  }

 private:
  std::chrono::milliseconds next_ = kFirstPause;
};

// A session of a host that runs no launcher has no such folder, and its ranks get no secret so.
std::string take_secret_command() {
  return fmt::format(
      R"(if [ -n "${0}" ]; then umask 077 && cat > "${0}/{1}"; else cat > /dev/null; fi)",
      kFolderVariable, kSecretFile);
}

void pin(const PeerRequest& request, std::string_view host_key) {
  smp::replace_text(request.folder / "known_hosts" / request.host,
                    known_host_line(request.host, request.port, host_key), smp::kForOwner);
}

Conversation call(const PeerRequest& request, const std::vector<tcp::Address>& addresses) {
  return {tcp::Connection::open(addresses, kConnect), Side::kMaster, request.secret};
}

std::string greeting_of(Conversation& worker) {
  try {
    return worker.hear_first(kExchangePrefix, kLongestFailedLine, Clock::now() + kBanner);
  } catch (const UnprovedLine&) {
    refuse_secret(worker);
    throw;
  }
}

// One try. Empty: the login works, or `failed` was told; else how far it got.
std::string try_peer(const PeerRequest& request, bool& pinned, std::optional<JobStatus>& failed) {
  const std::vector<tcp::Address> addresses = tcp::resolve(request.host, request.port);
  if (addresses.empty()) return "DNS: the name does not resolve";
  std::string step = "TCP";
  try {
    Conversation worker = call(request, addresses);
    const std::string greeting = greeting_of(worker);
    failed = parse_failed_line(greeting, request.host, request.job);
    if (failed) {
      confirm_failure(worker);
      return {};
    }
    if (greeting.starts_with(kExchangeGreeting)) {
      step = "key exchange";
      if (request.job_key.empty()) {
        return "key exchange: a key pair is mounted here but not there; mount it on every host";
      }
      hand_over_key(worker, greeting, request.host, request.job, request.job_key,
                    [&](const std::string& host_key) { pin(request, host_key); });
      pinned = true;
      return "ssh: its sshd does not answer yet";
    }
    if (!greeting.starts_with("SSH-")) return "TCP: the port is no ssh server";
  } catch (const smp::HostError& error) {
    return fmt::format("{}: port {}: {}", step, request.port, error.what());
  }
  if (!pinned) {
    return "key: an sshd runs there that we have exchanged no keys with; another launcher needs a "
           "mounted key pair (SM_LAUNCH_SSH_KEY)";
  }
  const Completed login = run_on_host(request.ssh_config, request.host, take_secret_command(),
                                      request.environment, kLogin, request.rank_secret);
  if (login.status.ok()) return {};
  std::string words = login.output;
  std::ranges::replace(words, '\n', ' ');
  return login.timed_out ? "ssh: the login takes too long" : "key: ssh login refused: " + words;
}

}  // namespace

std::optional<JobStatus> wait_for_peer(const PeerRequest& request, Deadline deadline) {
  std::optional<JobStatus> failed;
  bool pinned = request.job_key.empty();
  Pause pause;
  Deadline next_word = Clock::now() + kFirstWord;
  while (true) {
    const std::string reason = try_peer(request, pinned, failed);
    if (reason.empty()) return failed;
    if (Clock::now() >= next_word) {
      SMP_LOG(warning, "Still waiting for {}: {}", request.host, reason);
      next_word = Clock::now() + kNextWord;
    }
    if (Clock::now() >= deadline) throw smp::HostError("{}: {}", request.host, reason);
    pause.take(deadline);
  }
}

void tell_peer(const PeerRequest& request, const StatusDelivery& delivery, const JobStatus& status,
               Deadline deadline) {
  Pause pause;
  while (true) {
    try {
      Conversation worker = call(request, tcp::resolve(request.host, request.port));
      const std::string greeting = greeting_of(worker);
      if (parse_failed_line(greeting, request.host, request.job)) return confirm_failure(worker);
      if (greeting.starts_with(kExchangeGreeting)) {
        return tell_worker_of_failure(worker, request.host, request.job, status);
      }
      return deliver_job_status(delivery, request.host, status, deadline);
    } catch (const smp::HostError&) {
      if (Clock::now() >= deadline) throw;
    }
    pause.take(deadline);
  }
}

void wait_for_name(const std::string& host, Deadline deadline) {
  Pause pause;
  while (tcp::resolve(host, 0).empty()) {
    if (Clock::now() >= deadline) throw smp::HostError("{}: the name does not resolve", host);
    pause.take(deadline);
  }
}

void wait_for_port(const std::string& host, int port, Deadline deadline) {
  Pause pause;
  while (true) {
    try {
      tcp::Connection::open(tcp::resolve(host, port), kConnect);
      return;
    } catch (const smp::HostError& error) {
      if (Clock::now() >= deadline)
        throw smp::HostError("{} port {}: {}", host, port, error.what());
    }
    pause.take(deadline);
  }
}

}  // namespace entrypoint
