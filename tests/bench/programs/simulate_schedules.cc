// SPDX-License-Identifier: Apache-2.0
// Times of smddp's collectives between many hosts, by a discrete-event model of their networks over
// the plans and rounds that ranks run. What a host computes and copies takes no time here.
//
// A host has one wire out and one in. A message occupies the sender's wire, and after the latency
// the receiver's, for a fixed cost and for its bytes; messages wait for each other in the order in
// which they come. Prints one JSON object a collective.
//
// usage: simulate_schedules GBIT_PER_SECOND LATENCY_US MESSAGE_US

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/smddp/collectives/bootstrap.h"
#include "smp_runtime/smddp/collectives/chunk_plan.h"
#include "smp_runtime/smddp/collectives/mailbox_message.h"
#include "smp_runtime/smddp/collectives/schedule_rounds.h"

namespace smp::collectives {
namespace {

constexpr int kRanksOfHost = 8;

struct Network {
  double bytes_per_s;
  double latency_s;
  double message_s;
};

/// Runs what happens in the order of its times.
class Clock {
 public:
  [[nodiscard]] double now() const { return now_; }
  void at(double time, std::function<void()> act) {
    events_.push({.time = time, .number = count_++, .act = std::move(act)});
  }
  void run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      event.act();
    }
  }

 private:
  struct Event {
    double time;
    std::size_t number;
    std::function<void()> act;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  double now_ = 0;
  std::size_t count_ = 0;
  std::priority_queue<Event> events_;
};

class Wires {
 public:
  Wires(Clock& clock, const Network& network, int hosts)
      : clock_(clock),
        network_(network),
        out_free_(static_cast<std::size_t>(hosts)),
        in_free_(static_cast<std::size_t>(hosts)) {}

  /// Messages of so many bytes in all, one behind the other.
  void send(int from, int to, int messages, double bytes, const std::function<void()>& sent,
            const std::function<void()>& received) {
    const double time = messages * network_.message_s + bytes / network_.bytes_per_s;
    double& out = out_free_[static_cast<std::size_t>(from)];
    const double begin = std::max(clock_.now(), out);
    out = begin + time;
    clock_.at(out, sent);
    clock_.at(begin + network_.latency_s, [=, this] {
      double& in = in_free_[static_cast<std::size_t>(to)];
      in = std::max(clock_.now(), in) + time;
      clock_.at(in, received);
    });
  }

 private:
  Clock& clock_;
  const Network network_;
  std::vector<double> out_free_;
  std::vector<double> in_free_;
};

topology::GroupLayout layout_of(int hosts) {
  std::vector<std::string> names;
  for (int rank = 0; rank < hosts * kRanksOfHost; ++rank) {
    names.push_back(std::to_string(rank / kRanksOfHost));
  }
  return topology::GroupLayout::from(names, 0);
}

/// All hosts in one collective; the ranks of a host are in the same turn.
class Simulation {
 public:
  Simulation(const topology::GroupLayout& layout, const Network& network)
      : layout_(layout), wires_(clock_, network, layout.hosts()) {}

  /// The step in which ranks compare their calls, with payloads of so many bytes.
  double check(std::size_t payload) {
    const double bytes = static_cast<double>(kRanksOfHost * (kMailboxHeaderBytes + payload));
    double end = 0;
    for (int host = 0; host < layout_.hosts(); ++host) {
      for (const int other : hosts_after(host, layout_.hosts())) {
        wires_.send(
            host, other, 1, bytes, [] {}, [&] { end = clock_.now(); });
      }
    }
    clock_.run();
    return end;
  }

  /// HierarchicalSchedule::run() of all hosts.
  double run(const ChunkPlan& plan) {
    const std::size_t buffer = segment_shape(layout_, Tuning{}).buffer_bytes;
    rounds_ = ScheduleRounds::of(plan, layout_.hosts(), {.buffer_bytes = buffer});
    plan_ = &plan;
    hosts_.assign(static_cast<std::size_t>(layout_.hosts()), {});
    for (Host& host : hosts_) {
      host.arrivals.resize(rounds_.count);
      host.departures.resize(rounds_.count);
    }
    for (int host = 0; host < layout_.hosts(); ++host) advance(host);
    clock_.run();
    return clock_.now();
  }

 private:
  struct Host {
    std::size_t turn = 0;
    bool arrived = false;         ///< the messages of the turn's step are on their way
    bool departed = false;        ///< likewise
    std::vector<int> arrivals;    ///< ends of messages, by round
    std::vector<int> departures;  ///< likewise
  };

  [[nodiscard]] bool in_turn(std::size_t turn, std::size_t lag) const {
    return turn >= lag && turn - lag < rounds_.count;
  }
  [[nodiscard]] bool sums() const { return plan_->arrival == Arrival::kSum; }

  /// To each other host, and from it.
  [[nodiscard]] bool all_ended(int ends) const { return ends == 2 * (layout_.hosts() - 1); }

  void advance(int number) {
    Host& host = hosts_[static_cast<std::size_t>(number)];
    while (host.turn < rounds_.count + 1 + 2 * kLag) {
      if (in_turn(host.turn, 1) && sums() && !std::exchange(host.arrived, true)) {
        exchange(number, host.turn - 1, true);
      }
      if (in_turn(host.turn, 1 + kLag) && !host.departed) {
        const std::size_t round = host.turn - 1 - kLag;
        if (sums() && !all_ended(host.arrivals[round])) return;
        host.departed = true;
        exchange(number, round, false);
      }
      if (in_turn(host.turn, 1 + 2 * kLag) &&
          !all_ended(host.departures[host.turn - 1 - 2 * kLag])) {
        return;
      }
      ++host.turn;
      host.arrived = host.departed = false;
    }
  }

  /// Sends the pieces of a round: those that others lead to them, or the own ones to all.
  void exchange(int number, std::size_t round, bool arrival) {
    for (const int other : hosts_after(number, layout_.hosts())) {
      const auto end_at = [=, this](int host) {
        return [=, this] {
          Host& one = hosts_[static_cast<std::size_t>(host)];
          ++(arrival ? one.arrivals : one.departures)[round];
          advance(host);
        };
      };
      wires_.send(number, other, kRanksOfHost, bytes_led_by(arrival ? other : number, round),
                  end_at(number), end_at(other));
    }
  }

  [[nodiscard]] double bytes_led_by(int host, std::size_t round) const {
    double bytes = 0;
    for (int rail = 0; rail < kRanksOfHost; ++rail) {
      const auto chunk = static_cast<std::size_t>(host * kRanksOfHost + rail);
      bytes += static_cast<double>(rounds_.bytes_of(plan_->chunks[chunk], round));
    }
    return bytes;
  }

  const topology::GroupLayout& layout_;
  Clock clock_;
  Wires wires_;
  const ChunkPlan* plan_ = nullptr;
  ScheduleRounds rounds_;
  std::vector<Host> hosts_;
};

void print(const char* collective, int hosts, std::size_t bytes, double seconds, double bound) {
  const nlohmann::json row{{"collective", collective},
                           {"hosts", hosts},
                           {"bytes", bytes},
                           {"seconds", seconds},
                           {"bound", bound}};
  std::printf("%s\n", row.dump().c_str());
}

void simulate(int hosts, const Network& network) {
  const topology::GroupLayout layout = layout_of(hosts);
  const double share = static_cast<double>(hosts - 1) / hosts / network.bytes_per_s;
  const double steps = std::ceil(std::log2(hosts)) * network.latency_s;
  print("all_reduce", hosts, 8, Simulation(layout, network).check(8), steps);
  for (const std::size_t megabytes : {1, 16, 64, 256}) {
    const std::size_t bytes = megabytes << 20;
    Simulation sum(layout, network);
    const ChunkPlan sums{.arrival = Arrival::kSum,
                         .departure = Departure::kToAll,
                         .chunks = even_chunks(layout, bytes, 4)};
    sum.check(0);
    print("all_reduce", hosts, bytes, sum.run(sums), 2 * static_cast<double>(bytes) * share);
    Simulation gather(layout, network);
    const std::size_t own = bytes / static_cast<std::size_t>(layout.size());
    const ChunkPlan parts{.arrival = Arrival::kFromOwner,
                          .departure = Departure::kToAll,
                          .chunks = chunk_per_rank(layout, own)};
    gather.check(0);
    print("all_gather", hosts, bytes, gather.run(parts), static_cast<double>(bytes) * share);
  }
}

}  // namespace
}  // namespace smp::collectives

int main(int argc, char** argv) {
  std::vector<double> numbers;
  for (int i = 1; i < argc; ++i) numbers.push_back(std::atof(argv[i]));
  if (numbers.size() != 3 || numbers[0] <= 0) {
    std::fprintf(stderr, "usage: simulate_schedules GBIT_PER_SECOND LATENCY_US MESSAGE_US\n");
    return 2;
  }
  const smp::collectives::Network network{.bytes_per_s = numbers[0] * 1e9 / 8,
                                          .latency_s = numbers[1] * 1e-6,
                                          .message_s = numbers[2] * 1e-6};
  for (const int hosts : {2, 4, 8, 16, 32, 64, 128}) smp::collectives::simulate(hosts, network);
  return 0;
}
