// SPDX-License-Identifier: Apache-2.0
// Times of smddp's collectives between many hosts, by a discrete-event model of their networks over
// the plans and rounds that ranks run. What a host computes and copies takes no time here.
//
// A host has one wire out and one in, and a processor for each rank. A message takes the sender's
// processor for a fixed time, then its wire for the bytes, after the latency the receiver's wire as
// long, and the receiver's processor; each serves messages in the order in which they come. Prints
// one JSON object a collective.
//
// usage: simulate_schedules GBIT_PER_SECOND LATENCY_US MESSAGE_US RANKS_OF_HOST HOSTS...

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/smddp/collectives/bootstrap.h"
#include "smp_runtime/smddp/collectives/chunk_plan.h"
#include "smp_runtime/smddp/collectives/mailbox_message.h"
#include "smp_runtime/smddp/collectives/mailbox_relay.h"
#include "smp_runtime/smddp/collectives/schedule_rounds.h"

namespace smp::collectives {
namespace {

struct Network {
  double bytes_per_s;
  double latency_s;
  double message_s;
  int ranks_of_host;
};

/// Runs what happens in the order of its times.
class Clock {
 public:
  [[nodiscard]] double now() const { return now_; }
  void at(double time, std::function<void()> act) {
    events_.push_back({.time = time, .number = count_++, .act = std::move(act)});
    std::ranges::push_heap(events_, {}, order);
  }
  void run() {
    while (!events_.empty()) {
      std::ranges::pop_heap(events_, {}, order);
      const Event event = std::move(events_.back());
      events_.pop_back();
      now_ = event.time;
      event.act();
    }
  }

 private:
  struct Event {
    double time;
    std::size_t number;
    std::function<void()> act;
  };

  /// The earliest is the largest.
  static std::pair<double, double> order(const Event& event) {
    return {-event.time, -static_cast<double>(event.number)};
  }

  double now_ = 0;
  std::size_t count_ = 0;
  std::vector<Event> events_;
};

/// What messages wait for, one behind the other.
class Queue {
 public:
  /// The time at which `now` and `seconds` of work end here.
  double take(double now, double seconds) {
    free_ = std::max(now, free_) + seconds;
    return free_;
  }

 private:
  double free_ = 0;
};

/// A message between the ranks of a rail.
struct Message {
  int from;
  int to;
  int rail;
  double bytes;
  bool arrival = false;   ///< at a leader, of a schedule
  std::size_t round = 0;  ///< of a schedule; else the step
};

class Hosts {
 public:
  /// Tells `ended` of each message at the sender, and at the receiver.
  Hosts(Clock& clock, const Network& network, int hosts,
        std::function<void(int host, const Message&)> ended)
      : clock_(clock),
        network_(network),
        out_(static_cast<std::size_t>(hosts)),
        in_(static_cast<std::size_t>(hosts)),
        processors_(static_cast<std::size_t>(hosts * network.ranks_of_host)),
        ended_(std::move(ended)) {}

  void send(const Message& message) {
    std::size_t place = messages_.size();
    if (free_.empty()) {
      messages_.push_back(message);
    } else {
      place = free_.back();
      free_.pop_back();
      messages_[place] = message;
    }
    after_computing(message.from, place, [this, place] { leave(place); });
  }

 private:
  void leave(std::size_t place) {
    const Message& message = messages_[place];
    const double time = message.bytes / network_.bytes_per_s;
    const double left = out_[static_cast<std::size_t>(message.from)].take(clock_.now(), time);
    clock_.at(left, [this, place] { ended_(messages_[place].from, Message(messages_[place])); });
    clock_.at(left - time + network_.latency_s, [this, place] { arrive(place); });
  }

  void arrive(std::size_t place) {
    const Message& message = messages_[place];
    Queue& wire = in_[static_cast<std::size_t>(message.to)];
    clock_.at(wire.take(clock_.now(), message.bytes / network_.bytes_per_s), [this, place] {
      after_computing(messages_[place].to, place, [this, place] {
        const Message came = messages_[place];
        free_.push_back(place);
        ended_(came.to, came);
      });
    });
  }

  /// What a rank does for a message, then `next`.
  template <typename Next>
  void after_computing(int host, std::size_t place, const Next& next) {
    if (network_.message_s == 0) return next();
    const int rank = host * network_.ranks_of_host + messages_[place].rail;
    Queue& processor = processors_[static_cast<std::size_t>(rank)];
    clock_.at(processor.take(clock_.now(), network_.message_s), next);
  }

  Clock& clock_;
  const Network network_;
  std::vector<Queue> out_;
  std::vector<Queue> in_;
  std::vector<Queue> processors_;
  std::vector<Message> messages_;  ///< on their way, and places for others
  std::vector<std::size_t> free_;
  std::function<void(int host, const Message&)> ended_;
};

topology::GroupLayout layout_of(int hosts, int ranks_of_host) {
  std::vector<std::string> names;
  for (int rank = 0; rank < hosts * ranks_of_host; ++rank) {
    names.push_back(std::to_string(rank / ranks_of_host));
  }
  return topology::GroupLayout::from(names, 0);
}

/// All hosts in one collective; the ranks of a host are in the same turn.
class Simulation {
 public:
  Simulation(const topology::GroupLayout& layout, const Network& network)
      : layout_(layout),
        rails_(network.ranks_of_host),
        machines_(clock_, network, layout.hosts(),
                  [this](int host, const Message& message) { end(host, message); }) {}

  /// The steps in which ranks compare their calls, with payloads of so many bytes.
  double check(std::size_t payload) {
    const double bytes = rails_ * static_cast<double>(kMailboxHeaderBytes + payload);
    const int hosts = layout_.hosts();
    bundle_bytes_ = bytes;
    relays_.clear();
    if (hosts > kMostDirect) {
      for (int host = 0; host < hosts; ++host) relays_.push_back({relay_steps(host, hosts), {}});
      for (int host = 0; host < hosts; ++host) hand_on(host, 0);
    } else {
      for (int host = 0; host < hosts; ++host) {
        for (const int other : hosts_after(host, hosts)) {
          machines_.send({.from = host, .to = other, .rail = 0, .bytes = bytes});
        }
      }
    }
    clock_.run();
    return clock_.now();
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
  struct Relay {
    std::vector<RelayStep> steps;
    std::map<std::size_t, int> ends;  ///< of messages, by step
  };

  void end(int host, const Message& message) {
    if (plan_ != nullptr) {
      Host& one = hosts_[static_cast<std::size_t>(host)];
      int& ends = (message.arrival ? one.arrivals : one.departures)[message.round];
      if (all_ended(++ends)) advance(host);
    } else if (!relays_.empty()) {
      constexpr int kBoth = 2;
      int& ends = relays_[static_cast<std::size_t>(host)].ends[message.round];
      if (++ends == kBoth) hand_on(host, message.round + 1);
    }
  }

  /// InterNodeCollectives::relay() from that step on.
  void hand_on(int host, std::size_t number) {
    const Relay& relay = relays_[static_cast<std::size_t>(host)];
    if (number == relay.steps.size()) return;
    const RelayStep& step = relay.steps[number];
    machines_.send({.from = host,
                    .to = step.to,
                    .rail = 0,
                    .bytes = bundle_bytes_ * static_cast<double>(step.handed.size()),
                    .round = number});
  }

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

  /// To each other host, and from it, by each rank.
  [[nodiscard]] bool all_ended(int ends) const {
    return ends == 2 * rails_ * (layout_.hosts() - 1);
  }

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
      for (int rail = 0; rail < rails_; ++rail) {
        const int leader = arrival ? other : number;
        const Chunk& chunk = plan_->chunks[static_cast<std::size_t>(leader * rails_ + rail)];
        machines_.send({.from = number,
                        .to = other,
                        .rail = rail,
                        .bytes = static_cast<double>(rounds_.bytes_of(chunk, round)),
                        .arrival = arrival,
                        .round = round});
      }
    }
  }

  const topology::GroupLayout& layout_;
  const int rails_;  ///< of each host
  Clock clock_;
  Hosts machines_;
  double bundle_bytes_ = 0;  ///< of one host's mailboxes
  std::vector<Relay> relays_;
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
  const topology::GroupLayout layout = layout_of(hosts, network.ranks_of_host);
  const double share = static_cast<double>(hosts - 1) / hosts / network.bytes_per_s;
  const double steps = std::ceil(std::log2(hosts)) * network.latency_s;
  print("all_reduce", hosts, 8, Simulation(layout, network).check(8), steps);
  for (const std::size_t megabytes : {1, 4, 16, 64, 256}) {
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
  constexpr std::size_t kOfNetwork = 4;
  if (numbers.size() <= kOfNetwork || numbers[0] <= 0) {
    std::fprintf(stderr,
                 "usage: simulate_schedules GBIT_PER_SECOND LATENCY_US MESSAGE_US RANKS_OF_HOST "
                 "HOSTS...\n");
    return 2;
  }
  const smp::collectives::Network network{.bytes_per_s = numbers[0] * 1e9 / 8,
                                          .latency_s = numbers[1] * 1e-6,
                                          .message_s = numbers[2] * 1e-6,
                                          .ranks_of_host = static_cast<int>(numbers[3])};
  for (std::size_t i = kOfNetwork; i < numbers.size(); ++i) {
    smp::collectives::simulate(static_cast<int>(numbers[i]), network);
  }
  return 0;
}
