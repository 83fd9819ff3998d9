// SPDX-License-Identifier: Apache-2.0
// Both ends over real sockets; the worker's end runs in a thread.
#include "entrypoint/ssh/key_exchange.h"

#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

constexpr const char* kJobKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJobKey";
const Conversation::Secret kNoSecret;
constexpr const char* kHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHostKey";

// A worker that waits for its master.
class Worker {
 public:
  explicit Worker(std::chrono::milliseconds limit = 20s, const char* master_address = "127.0.0.1",
                  const Conversation::Secret& secret = kNoSecret)
      : listener_({"127.0.0.1"}, 0) {
    const ExchangeRequest request{
        .host = "algo-2",
        .master = "algo-1",
        .job = "job",
        .host_key = kHostKey,
        .secret = secret,
        .master_addresses = [master_address] { return tcp::resolve(master_address, 0); }};
    result_ = std::async(std::launch::async, [this, request, limit] {
      return receive_key(listener_, request, Clock::now() + limit);
    });
  }

  [[nodiscard]] tcp::Connection connect() const {
    return tcp::Connection::open(tcp::resolve("127.0.0.1", listener_.port()), 5s);
  }
  [[nodiscard]] Conversation call(const Conversation::Secret& secret = kNoSecret) const {
    return {connect(), Side::kMaster, secret};
  }
  std::string result() { return result_.get().key; }
  Received all() { return result_.get(); }
  std::string failure() {
    try {
      return "no failure but " + result_.get().key;
    } catch (const smp::HostError& error) {
      return error.what();
    }
  }

 private:
  tcp::Listener listener_;
  std::future<Received> result_;
};

std::string greeting_of(tcp::Connection& connection) {
  return connection.read_line(kLongestExchangeLine, Clock::now() + 5s);
}
std::string greeting_of(Conversation& worker) {
  return worker.hear(kLongestFailedLine, Clock::now() + 5s);
}

std::string answer_to(const Worker& worker, const std::string& line) {
  tcp::Connection connection = worker.connect();
  greeting_of(connection);
  connection.write(line, Clock::now() + 5s);
  return connection.read_line(kLongestExchangeLine, Clock::now() + 5s);
}

/// The master's side of an exchange. Returns the host key that it would pin.
std::string hand_over(Conversation connection) {
  std::string pinned;
  hand_over_key(connection, greeting_of(connection), "algo-2", "job", kJobKey,
                [&](const std::string& host_key) { pinned = host_key; });
  return pinned;
}

TEST(KeyExchange, GivesEachSideTheOthersKey) {
  Worker worker;

  EXPECT_EQ(hand_over(worker.call()), kHostKey);
  EXPECT_EQ(worker.result(), kJobKey);
}

TEST(KeyExchange, AMasterThatIsKilledWhilePinningLeavesTheWorkerListening) {
  Worker worker;
  {
    Conversation connection = worker.call();
    EXPECT_THROW(hand_over_key(connection, greeting_of(connection), "algo-2", "job", kJobKey,
                               [](const std::string&) { throw smp::HostError("killed"); }),
                 smp::HostError);
  }

  Conversation connection = worker.call();
  greeting_of(connection);
  tell_worker_of_failure(connection, "algo-2", "job", {.exit_code = 3, .failure_text = "pip"});
  EXPECT_EQ(worker.all().failure->exit_code, 3);
}

TEST(KeyExchange, GreetsSoThatTheMasterCanTellItFromSshd) {
  Worker worker(1s);
  tcp::Connection connection = worker.connect();

  EXPECT_EQ(greeting_of(connection), "SMP-KEYS/1 hello algo-2 job");
  EXPECT_THAT(worker.failure(), HasSubstr("did not hand over its key in time"));
}

TEST(KeyExchange, TalksToTheMastersAddressesOnly) {
  // We come from 127.0.0.1; the master's name leads elsewhere.
  Worker worker(300ms, "127.0.0.2");
  tcp::Connection connection = worker.connect();

  EXPECT_THROW(greeting_of(connection), smp::HostError);
  EXPECT_THAT(worker.failure(), HasSubstr("127.0.0.1 connected, which is no address of algo-1"));
}

TEST(KeyExchange, RefusesWhatIsNoKeyAndGoesOn) {
  Worker worker;
  const std::string attempts[] = {
      "GET / HTTP/1.1\n",
      "SMP-KEYS/1 key algo-2 job ssh-ed25519 AAAA\" command=\"sh\n",
      "SMP-KEYS/1 key algo-2 job ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJobKey comment\n",
      "SMP-KEYS/1 key algo-2 job command=\"x\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJobKey\n",
      "SMP-KEYS/1 key algo-2 job ssh-dss AAAAC3NzaC1lZDI1NTE5AAAAIJobKey\n",
      "SMP-KEYS/1 key algo-3 job " + std::string(kJobKey) + "\n",
      "SMP-KEYS/1 key algo-2 other " + std::string(kJobKey) + "\n"};

  for (const std::string& attempt : attempts) {
    EXPECT_THAT(answer_to(worker, attempt), StartsWith("SMP-KEYS/1 refused ")) << attempt;
  }
  hand_over(worker.call());
  EXPECT_EQ(worker.result(), kJobKey);
}

TEST(KeyExchange, EndsAtALineThatIsTooLong) {
  Worker worker;
  tcp::Connection attacker = worker.connect();
  greeting_of(attacker);
  attacker.write(std::string(kLongestFailedLine + 2, 'x'), Clock::now() + 5s);
  EXPECT_THROW(greeting_of(attacker), smp::HostError);

  hand_over(worker.call());
  EXPECT_EQ(worker.result(), kJobKey);
}

TEST(KeyExchange, TakesOneKeyForAJob) {
  Worker worker;
  // A first master gets as far as the answer and breaks off before `done`.
  EXPECT_THAT(answer_to(worker, std::string("SMP-KEYS/1 key algo-2 job ") + kJobKey + "\n"),
              StartsWith("SMP-KEYS/1 key "));

  EXPECT_THAT(answer_to(worker, "SMP-KEYS/1 key algo-2 job ssh-ed25519 AAAAAnotherKeyAltogether\n"),
              HasSubstr("another key was accepted before"));
  hand_over(worker.call());

  EXPECT_EQ(worker.result(), kJobKey);
}

TEST(KeyExchange, TellsTheMasterWhyItWasRefused) {
  Worker worker(2s);
  Conversation connection = worker.call();

  try {
    hand_over_key(connection, greeting_of(connection), "algo-2", "another", kJobKey,
                  [](const std::string&) {});
    FAIL() << "it was accepted";
  } catch (const smp::HostError& error) {
    EXPECT_THAT(error.what(), HasSubstr("belongs to a job with another list of hosts"));
  }
}

constexpr const char* kWords = "InstallRequirementsError:\nExitCode 1\n\"C:\\new\" \xC3\xA9\n";

TEST(KeyExchange, EndsForAWorkerWhoseMasterFailed) {
  Worker worker;
  const JobStatus status{.exit_code = 143, .failure_text = kWords};
  Conversation connection = worker.call();
  greeting_of(connection);

  tell_worker_of_failure(connection, "algo-2", "job", status);

  const Received received = worker.all();
  EXPECT_EQ(received.failure, status);
  EXPECT_EQ(received.key, "");
}

TEST(KeyExchange, TakesNoFailureOfAnotherJobOrHost) {
  Worker worker;

  for (const char* whom : {"algo-2 other", "algo-3 job"}) {
    EXPECT_THAT(answer_to(worker, fmt::format("SMP-KEYS/1 failed {} 1\n", whom)),
                StartsWith("SMP-KEYS/1 refused "));
  }
  hand_over(worker.call());
  EXPECT_EQ(worker.result(), kJobKey);
}

// A worker that failed and waits for its master.
class FailedWorker {
 public:
  explicit FailedWorker(const JobStatus& status, const char* master_address = "127.0.0.1",
                        std::chrono::milliseconds limit = 20s)
      : listener_({"127.0.0.1"}, 0) {
    const ExchangeRequest request{
        .host = "algo-2", .master = "algo-1", .job = "job", .master_addresses = [master_address] {
          return tcp::resolve(master_address, 0);
        }};
    told_ = std::async(std::launch::async, [this, request, status, limit] {
      return tell_master_of_failure(listener_, request, status, Clock::now() + limit);
    });
  }

  [[nodiscard]] tcp::Connection connect() const {
    return tcp::Connection::open(tcp::resolve("127.0.0.1", listener_.port()), 5s);
  }
  [[nodiscard]] Conversation call() const { return {connect(), Side::kMaster, kNoSecret}; }
  bool told() { return told_.get(); }

 private:
  tcp::Listener listener_;
  std::future<bool> told_;
};

TEST(KeyExchange, TellsTheMasterThatItsWorkerFailed) {
  const JobStatus status{.exit_code = 1, .failure_text = kWords};
  FailedWorker worker(status);
  { const tcp::Connection looked_only = worker.connect(); }  // as a watch of ports does
  Conversation connection = worker.call();

  const std::string line = greeting_of(connection);
  confirm_failure(connection);

  EXPECT_EQ(parse_failed_line(line, "algo-2", "job"), status);
  EXPECT_EQ(parse_failed_line(line, "algo-2", "other"), std::nullopt);
  EXPECT_TRUE(worker.told());
}

TEST(KeyExchange, CutsALongFailureAtACharacter) {
  std::string text(kLongestFailedLine - kSealBytes - 40, 'x');
  for (int i = 0; i < 40; ++i) text += "\xC3\xA9";
  FailedWorker worker({.exit_code = 1, .failure_text = text});
  Conversation connection = worker.call();

  const auto told = parse_failed_line(greeting_of(connection), "algo-2", "job");
  confirm_failure(connection);

  ASSERT_TRUE(told);
  EXPECT_THAT(text, StartsWith(told->failure_text));
  EXPECT_GT(told->failure_text.size(), kLongestFailedLine - kSealBytes - 60);
  EXPECT_NE(told->failure_text.back(), '\xC3');
}

TEST(KeyExchange, TellsAFailureToTheMasterOnly) {
  FailedWorker worker({.exit_code = 1, .failure_text = "secret"}, "127.0.0.2", 300ms);
  Conversation connection = worker.call();

  EXPECT_THROW(greeting_of(connection), smp::HostError);
  EXPECT_FALSE(worker.told());
}

smp::JobSecret secret_of(char letter) {
  return smp::JobSecret::given({{"SMP_JOB_SECRET", std::string(32, letter)}}).value();
}

TEST(KeyExchange, WithASecretGivesKeysToThoseWhoProveIt) {
  const smp::JobSecret secret = secret_of('a');
  Worker worker(20s, "127.0.0.1", secret);

  EXPECT_EQ(hand_over(worker.call(secret)), kHostKey);
  EXPECT_EQ(worker.result(), kJobKey);
}

// A user of the master's host has its address, and reads names and digest in the greeting.
TEST(KeyExchange, WithASecretRefusesTheKeyOfAStrangerOnTheMastersHost) {
  const smp::JobSecret secret = secret_of('a');
  Worker worker(20s, "127.0.0.1", secret);
  tcp::Connection stranger = worker.connect();
  const std::string greeting = greeting_of(stranger);
  std::string said = "SMP-KEYS/1 key algo-2 job ssh-ed25519 AAAAAKeyOfAStranger";
  for (const std::string& line : {said, said + greeting.substr(greeting.find(" job ") + 4),
                                  said + " " + std::string(32, '0')}) {
    tcp::Connection again = worker.connect();
    greeting_of(again);
    again.write(line + "\nSMP-KEYS/1 done\n", Clock::now() + 5s);
    EXPECT_THROW(greeting_of(again), smp::HostError) << "no host key for " << line;
  }
  EXPECT_THROW(hand_over(worker.call(secret_of('b'))), smp::HostError);

  EXPECT_EQ(hand_over(worker.call(secret)), kHostKey);
  EXPECT_EQ(worker.result(), kJobKey);
}

TEST(KeyExchange, AMasterThatKnowsTheSecretRefusesAWorkerThatDoesNot) {
  Worker stranger(1s);

  EXPECT_THAT([&] { hand_over(stranger.call(secret_of('a'))); },
              testing::ThrowsMessage<smp::HostError>(HasSubstr("give all hosts the same")));
  EXPECT_THAT(stranger.failure(), HasSubstr("did not hand over its key in time"));
}

TEST(KeyExchange, AMasterWithoutTheSecretOfItsWorkerSaysSo) {
  Worker worker(1s, "127.0.0.1", secret_of('a'));

  EXPECT_THAT([&] { hand_over(worker.call()); },
              testing::ThrowsMessage<smp::HostError>(
                  HasSubstr("algo-2 was given the job's secret and this host was not")));
}

TEST(KeyExchange, SilentCallersKeepTheMasterWaitingForNothing) {
  Worker worker;
  std::vector<tcp::Connection> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(worker.connect());
  const auto start = Clock::now();

  EXPECT_EQ(hand_over(worker.call()), kHostKey);
  EXPECT_LT(Clock::now() - start, 5s) << "each was waited for";
}

TEST(JobDigest, TellsJobsApart) {
  const std::vector<std::string> hosts = {"algo-1", "algo-2"};

  EXPECT_EQ(job_digest(hosts, "j"), job_digest(hosts, "j"));
  EXPECT_NE(job_digest(hosts, "j"), job_digest(hosts, "k"));
  EXPECT_NE(job_digest(hosts, "j"), job_digest({{"algo-1a", "lgo-2"}}, "j"));
}

}  // namespace
}  // namespace entrypoint
