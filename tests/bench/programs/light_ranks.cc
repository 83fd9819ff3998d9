// SPDX-License-Identifier: Apache-2.0
// Counts what ranks without a model cost: each is a thread with a session of its own over a real
// TCPStore. Prints one JSON object a part of the job.
//
// usage: light_ranks job RANKS
//        light_ranks straggler RANKS SECONDS
//        light_ranks mismatch RANKS
//        light_ranks watch RANKS

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "smp_runtime/checkpoint/session/checkpoint_save.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/tcp.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/session/deadlock/wait_graph.h"
#include "smp_runtime/session/session.h"
#include "smp_runtime/topology/setting.h"
#include "smp_runtime/transport/fabric/failure_detector.h"
#include "tests/bench/programs/counted_calls.h"
#include "tests/bench/programs/thread_backend.h"

namespace smp::bench {
namespace {

using session::Session;
using topology::Group;

constexpr int kRanksOfHost = 8;
constexpr int kBarriers = 10;
constexpr int kObjects = 3;
/// Ranks that are late, or in another call; they stand in the middle of the others.
int odd_one(int ranks) { return ranks / 3; }

/// The parts of a job, which all ranks begin and end together.
class Parts {
 public:
  explicit Parts(int ranks) : ranks_(ranks), gate_(ranks, Passed{this}) {}

  /// All ranks call it, one after the other.
  void run(const char* name, const std::function<void()>& part) {
    gate_.arrive_and_wait();
    part();
    name_ = name;
    gate_.arrive_and_wait();
  }

 private:
  struct Passed {
    Parts* parts;
    void operator()() noexcept { parts->pass(); }
  };

  void pass() {
    const Counts now = Counts::now();
    if (std::exchange(running_, !running_)) print(now);
    before_ = now;
  }

  void print(const Counts& now) const {
    const nlohmann::json row{{"part", name_.load()},
                             {"ranks", ranks_},
                             {"requests", now.requests - before_.requests},
                             {"bytes", now.bytes - before_.bytes},
                             {"connections", now.connections - before_.connections},
                             {"lookups", now.lookups - before_.lookups},
                             {"processor_s", now.processor_s - before_.processor_s},
                             {"memory_kb", now.memory_kb - before_.memory_kb},
                             {"threads", now.threads},
                             {"wall_s", now.time_s - before_.time_s}};
    std::printf("%s\n", row.dump().c_str());
    std::fflush(stdout);
  }

  const int ranks_;
  bool running_ = false;
  Counts before_;
  std::atomic<const char*> name_ = "";
  std::barrier<Passed> gate_;
};

Variables variables_of(int rank, int ranks, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(ranks)},
          {"LOCAL_RANK", std::to_string(rank % kRanksOfHost)},
          {"LOCAL_WORLD_SIZE", std::to_string(std::min(kRanksOfHost, ranks))},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", std::to_string(port)},
          {"SMP_TIMEOUT_SECONDS", "300"},
          {"SM_LOG_LEVEL", "40"}};
}

/// The degrees of 1,024 ranks are 4 x 8 x 32; fewer ranks leave out what does not fit.
std::string settings_for(int ranks) {
  const int tensor = std::min(ranks, 8);
  const int pipeline = std::min(ranks / tensor, 4);
  return fmt::format("pipeline_parallel_degree={},tensor_parallel_degree={},ddp=True", pipeline,
                     tensor);
}

session::SessionRequest request_for(int rank, int ranks, int port) {
  const Variables variables = variables_of(rank, ranks, port);
  return {.config = topology::make_parallel_config(
              topology::parse_settings(settings_for(ranks), "light_ranks")),
          .options = cluster::make_runtime_options(variables),
          .variables = variables,
          .find_mpi = {},
          .script_line = [rank] { return fmt::format("train.py:{}", rank); }};
}

session::MakeGroup group_maker(const session::StorePtr& store, int rank) {
  return [store, rank](const session::GroupRequest& request) {
    const auto found = std::ranges::find(request.ranks, rank);
    const int mine = static_cast<int>(found - request.ranks.begin());
    const int size = static_cast<int>(request.ranks.size());
    const auto own = c10::make_intrusive<c10d::PrefixStore>(request.name, store);
    auto group = c10::make_intrusive<c10d::ProcessGroup>(own, mine, size);
    constexpr auto kOurs = c10d::ProcessGroup::BackendType::CUSTOM;
    group->setDefaultBackend(kOurs);
    group->setBackend(c10::DeviceType::CPU, kOurs,
                      c10::intrusive_ptr<c10d::Backend>(
                          c10::make_intrusive<ThreadBackend>(request.name, mine, size)));
    group->setGroupName(request.name);
    group->setGroupDesc(request.description);
    return group;
  };
}

std::vector<int> all_of(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::unique_ptr<Session> join(int rank, int ranks, int port) {
  return std::make_unique<Session>(request_for(rank, ranks, port));
}

void make_groups(Session& session) {
  session.open_groups({.tensors = "threads", .cpu = "threads", .by_host = {}},
                      group_maker(session.world_store(), session.ranks().rank));
  for (const Group kind : topology::kGroups) {
    session.groups().internal_group(kind);
    session.groups().cpu_group(kind);
  }
}

void meet(Session& session, int times) {
  const std::vector<int> all = all_of(session.ranks().size);
  for (int i = 0; i < times; ++i) session.barriers().all("a barrier", "barrier", all);
}

void broadcast_object(Session& session) {
  const std::string object(1000, 'x');
  for (int i = 0; i < kObjects; ++i) {
    if (session.ranks().rank == 0) {
      session.objects().broadcast("a broadcast", Group::kWorld, object);
    } else {
      SMP_CHECK(session.objects().receive("a broadcast", Group::kWorld, 0) == object, "");
    }
  }
}

void gather_objects(Session& session) {
  const std::string object(1000, 'x');
  for (int i = 0; i < kObjects; ++i) {
    session.objects().all_gather("a gather", Group::kWorld, object);
  }
}

/// Only what ranks agree on, and the manifest: the files are not written.
void save(Session& session, const std::filesystem::path& folder) {
  checkpoint::CheckpointSave save(
      session, {.what = "a save", .root = folder, .name = "step_1_partial", .library = "bench"});
  const std::string name = fmt::format("model_{}.pt", session.ranks().rank);
  save.add({.name = name, .bytes = 1000, .crc32c = 7});
  save.tell({});
  save.publish_folder();
}

void run_job(Parts& parts, int rank, int ranks, int port, const std::filesystem::path& folder) {
  std::unique_ptr<Session> session;
  parts.run("start", [&] { session = join(rank, ranks, port); });
  parts.run("groups", [&] { make_groups(*session); });
  parts.run("barriers", [&] { meet(*session, kBarriers); });
  parts.run("broadcasts", [&] { broadcast_object(*session); });
  parts.run("gathers", [&] { gather_objects(*session); });
  parts.run("save", [&] { save(*session, folder); });
  parts.run("end", [&] {
    session->leave(/*failed=*/false, /*serves=*/true);
    session.reset();
  });
}

void run_straggler(Parts& parts, int rank, int ranks, int port, std::chrono::seconds late) {
  const std::unique_ptr<Session> session = join(rank, ranks, port);
  meet(*session, 1);
  parts.run("straggler", [&] {
    if (rank == odd_one(ranks)) std::this_thread::sleep_for(late);
    meet(*session, 1);
  });
  session->leave(/*failed=*/false, /*serves=*/true);
}

/// One rank is in another call than all others; ends once each of them has been told.
void run_mismatch(Parts& parts, int rank, int ranks, int port) {
  const std::unique_ptr<Session> session = join(rank, ranks, port);
  meet(*session, 1);
  parts.run("mismatch", [&] {
    try {
      const char* label = rank == odd_one(ranks) ? "other" : "barrier";
      session->barriers().all(fmt::format("call {}", label), label, all_of(ranks));
    } catch (const session::CallMismatch& mismatch) {
      const std::string_view text = mismatch.what();
      for (const char* call : {"call other", "call barrier"}) {
        SMP_CHECK(text.find(call) != std::string_view::npos, "{}", text);
      }
      return;
    }
    throw InternalError("no mismatch was found");
  });
  session->leave(/*failed=*/true, /*serves=*/false);
}

/// What smddp's ranks of several hosts do to notice each other's ends, and the end of one.
class Watching {
 public:
  explicit Watching(int ranks) : addresses_(static_cast<std::size_t>(ranks)) {}

  void run(Parts& parts, int rank, int ranks) {
    std::promise<std::string> failed;
    std::atomic<bool> told{false};
    auto detector = std::make_unique<transport::FailureDetector>("127.0.0.1", rank, nullptr,
                                                                 [&](const std::string& reason) {
                                                                   if (!told.exchange(true))
                                                                     failed.set_value(reason);
                                                                 });
    addresses_[static_cast<std::size_t>(rank)] = detector->address();
    const auto limit = [](const char* what) {
      return transport::WaitLimit::after(std::chrono::seconds(300), what);
    };
    parts.run("watch", [&] {
      std::vector<transport::FailureDetector::Peer> peers;
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        peers.push_back({.rank = peer,
                         .name = fmt::format("rank {}", peer),
                         .address = addresses_[static_cast<std::size_t>(peer)]});
      }
      detector->connect_by_hub(peers, limit("connecting"));
    });
    parts.run("loss", [&] {
      if (rank == odd_one(ranks)) return detector.reset();
      const std::string reason = failed.get_future().get();
      SMP_CHECK(reason.starts_with(fmt::format("rank {} is gone", odd_one(ranks))), "{}", reason);
    });
    parts.run("leaving", [&] {
      if (!detector) return;
      detector->completed(1);
      detector->leave(limit("leaving"));
      detector.reset();
    });
  }

 private:
  std::vector<std::string> addresses_;
};

void run(std::string_view part, int ranks, int seconds) {
  const int port = tcp::Listener({"127.0.0.1"}, 0).port();
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("light-ranks-{}", getpid());
  Parts parts(ranks);
  Watching watching(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        if (part == "job") run_job(parts, rank, ranks, port, folder);
        if (part == "straggler") {
          run_straggler(parts, rank, ranks, port, std::chrono::seconds(seconds));
        }
        if (part == "mismatch") run_mismatch(parts, rank, ranks, port);
        if (part == "watch") watching.run(parts, rank, ranks);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "light_ranks: rank %d: %s\n", rank, error.what());
        std::_Exit(1);  // the others wait for it
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace smp::bench

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const bool is_late = words.size() == 3 && words[0] == "straggler";
  constexpr std::array<std::string_view, 3> kParts{"job", "mismatch", "watch"};
  const bool is_known =
      is_late || (words.size() == 2 && std::ranges::find(kParts, words[0]) != kParts.end());
  const auto ranks = is_known ? smp::parse_number<int>(words[1]) : std::nullopt;
  const auto seconds = is_late ? smp::parse_number<int>(words[2]) : std::optional(0);
  if (!ranks || *ranks < 2 || !seconds) {
    std::fprintf(
        stderr,
        "usage: light_ranks job|mismatch|watch RANKS, light_ranks straggler RANKS SECONDS\n");
    return 2;
  }
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  smp::bench::run(words[0], *ranks, *seconds);
  return 0;
}
