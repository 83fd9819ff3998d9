// SPDX-License-Identifier: Apache-2.0
// Exchange of ssh keys, by which the hosts of a job come to trust each other when none were
// mounted.
//
// Every host makes a host key of its own. Until it knows the master's key, a worker listens on the
// port that its sshd will have; the master connects to each worker. Lines of text, each ending in a
// newline and at most 1024 bytes long; W is the worker, M the master:
//
//     W: SMP-KEYS/1 hello HOST JOB          so M can tell it from an sshd, which says "SSH-…"
//     M: SMP-KEYS/1 key HOST JOB TYPE KEY   the public half of the job's key pair
//     W: SMP-KEYS/1 key TYPE KEY            the worker's host key, which M pins
//        or SMP-KEYS/1 refused REASON       by either side
//     M: SMP-KEYS/1 done
//
// A host that failed before that, as pip or a download may, says so, and how, in place of its line:
//
//     W: SMP-KEYS/1 failed HOST JOB STATUS  for its hello; M answers `done`
//     M: SMP-KEYS/1 failed HOST JOB STATUS  for its key; W answers `done`
//
// STATUS is the text of job_status.h with "\\n" for newlines; such a line may have 8192 bytes.
//
// After `done` the worker stops listening and starts sshd, which lets in the holder of the master's
// key and nobody else. JOB is a digest of the job's host list: two jobs that meet by accident tell
// each other so.
//
// Hosts that were given the job's secret prove it with each line (conversation.h), and take none
// that does not. Without it an attacker on the network can do this, in these bounds:
// - Connect to a worker first and hand in a key: the worker talks only to addresses that the
//   master's name resolves to, and a TCP connection cannot be opened from a forged address. All
//   users of the master's host have its address.
// - Answer in a worker's place or sit in between: whoever controls addresses or names inside the
//   job's own network can, and who takes the worker's port first on its host.
// With or without it:
// - Send anything: lengths, types and characters are checked before use, callers are heard side by
//   side, a conversation ends after five seconds, the listener after the job's worker timeout. A
//   key that is not the first one that was accepted is refused: one exchange per job.
// - Read along: public halves, and the text of a failure.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/ssh/conversation.h"
#include "entrypoint/ssh/job_status.h"

namespace entrypoint {

inline constexpr std::size_t kLongestExchangeLine = 1024;
inline constexpr std::size_t kLongestFailedLine = 8192;
inline constexpr std::string_view kExchangePrefix = "SMP-KEYS/1 ";
inline constexpr std::string_view kExchangeGreeting = "SMP-KEYS/1 hello ";

/// Equal on all hosts of a job, different for another list of hosts or another name.
std::string job_digest(std::span<const std::string> hosts, std::string_view job_name);

/// Master's side, after a greeting that does not prove itself: has the worker say so, too.
void refuse_secret(Conversation& worker);

/// Master's side, after the greeting line was heard. `pin` keeps the worker's host
/// key; the worker is told that the exchange is complete after that, for a master that is killed in
/// between could never log in. Throws HostError with the reason.
void hand_over_key(Conversation& worker, std::string_view greeting, std::string_view host,
                   std::string_view job, std::string_view job_key,
                   const std::function<void(const std::string& host_key)>& pin);

/// Reads a line `failed` for `host` of `job`; none: it is another line, or of another job.
std::optional<JobStatus> parse_failed_line(std::string_view line, std::string_view host,
                                           std::string_view job);

/// Master's side, after either greeting: takes leave of a worker that failed, or tells one that
/// waits for a key that there will be none. Throws HostError.
void confirm_failure(Conversation& worker);
void tell_worker_of_failure(Conversation& worker, std::string_view host, std::string_view job,
                            const JobStatus& status);

struct ExchangeRequest {
  std::string host;    ///< our own name
  std::string master;  ///< its name, for messages
  std::string job;     ///< job_digest()
  std::string host_key;
  std::optional<smp::JobSecret> secret;
  /// Addresses that the master may come from; asked anew for each connection, for names appear
  /// late.
  std::function<std::vector<tcp::Address>()> master_addresses;
};

/// Either a key or a failure.
struct Received {
  std::string key;                   ///< the master's
  std::optional<JobStatus> failure;  ///< the master's: no rank will ever start
};

/// Worker's side: serves connections until one exchange is complete. Throws HostError at the
/// deadline, with what happened so far.
Received receive_key(tcp::Listener& listener, const ExchangeRequest& request, Deadline deadline);

/// Worker's side, instead: serves connections until the master knows that this host failed. False
/// at the deadline.
bool tell_master_of_failure(tcp::Listener& listener, const ExchangeRequest& request,
                            const JobStatus& status, Deadline deadline);

}  // namespace entrypoint
