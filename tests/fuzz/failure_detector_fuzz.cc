// SPDX-License-Identifier: Apache-2.0
// The failure detector, as a stranger and then a peer may talk to it: a stranger is no peer,
// whatever it says, the peer is one all the same, and what it says then is bounded and ends with
// its leaving or a failure.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/plain_bytes.h"
#include "smp_runtime/core/tcp.h"
#include "smp_runtime/transport/fabric/failure_detector.h"
#include "tests/fuzz/target.h"

namespace {

using namespace smp::transport;  // a program, not a header
using smp::Clock;
using std::chrono::milliseconds;
namespace tcp = smp::tcp;

constexpr milliseconds kLimit{5000};
constexpr std::size_t kLongestReason = 8192;

/// An address of the loopback for each input: the ends of those before it keep their ports a while.
std::string next_host() {
  static unsigned number = 0;
  ++number;
  return fmt::format("127.{}.{}.{}", 1 + number / 62500 % 250, number / 250 % 250,
                     1 + number % 250);
}

std::pair<std::string, std::string> host_and_nonce(const FailureDetector& detector, int& port) {
  std::istringstream words(detector.address());
  std::string host;
  std::string nonce;
  words >> host >> port >> nonce;
  return {host, nonce};
}

const smp::JobSecret& secret() {
  static const auto given =
      smp::JobSecret::given({{"SMP_JOB_SECRET", "a secret of a job, of forty characters or so"}});
  return *given;
}

WaitLimit limit() { return WaitLimit::after(kLimit, "connecting"); }

/// What rank 1 says to rank 0 first: it is led to a listener of this program.
std::string hello_to(const FailureDetector& zero, const std::string& host) {
  int port = 0;
  const auto [place, nonce] = host_and_nonce(zero, port);
  tcp::Listener between({host}, 0);
  FailureDetector one(host, 1, &secret(), [](const std::string&) {});
  one.connect({{.rank = 0,
                .name = "rank 0",
                .address = fmt::format("{} {} {}", host, between.port(), nonce)}},
              limit());
  const auto connection = between.accept(Clock::now() + kLimit);
  fuzz::require(connection.has_value());
  std::string hello(512, '\0');
  const ssize_t size = recv(connection->fd(), hello.data(), hello.size(), 0);
  fuzz::require(size > 0);
  hello.resize(static_cast<std::size_t>(size));
  return hello;
}

void say(const FailureDetector& detector, const std::string& words) {
  int port = 0;
  const auto [host, nonce] = host_and_nonce(detector, port);
  auto connection = tcp::Connection::open(tcp::resolve(host, port), kLimit);
  connection.write(words, Clock::now() + kLimit);
}

std::string message(std::uint32_t kind, std::uint64_t count, const std::string& text = "") {
  std::string bytes;
  smp::append_plain(bytes, kind);
  smp::append_plain(bytes, static_cast<std::uint32_t>(text.size()));
  smp::append_plain(bytes, count);
  return bytes + text;
}

/// The words of the stranger, behind their size, then those of the peer.
std::string input_of(const std::string& stranger, const std::string& peer) {
  return static_cast<char>(stranger.size()) + stranger + peer;
}

}  // namespace

std::map<std::string, std::string> fuzz::made_inputs() {
  const std::string failure = message(2, 0, "rank 1: out of memory");
  std::string announced = message(2, 0);
  announced[7] = '\x7f';  // two gigabytes of text
  return {{"failure", input_of("", failure)},
          {"leaves", input_of("", message(3, 0, "1") + message(4, 0))},
          {"hello_of_a_stranger", input_of(message(1, 1, std::string(32, '0')), failure)},
          {"announced_only", input_of(announced, announced + failure)}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  if (count == 0) return 0;
  const std::string words = fuzz::text_of(bytes + 1, count - 1);
  const std::size_t strange = std::min<std::size_t>(bytes[0], words.size());
  const std::string host = next_host();
  std::atomic<int> failures = 0;
  FailureDetector zero(host, 0, &secret(), [&](const std::string& reason) {
    fuzz::require(reason.size() <= kLongestReason);
    ++failures;
  });
  say(zero, words.substr(0, strange));
  say(zero, hello_to(zero, host) + words.substr(strange));
  zero.connect({{.rank = 1, .name = "rank 1", .address = ""}}, limit());
  zero.leave(limit());
  return 0;
}
