// SPDX-License-Identifier: Apache-2.0
// Meeting of the ranks of a group of smddp in a store where an earlier group may have left keys.
// (Those of a session, whose store is its own, gather by store_gather.h.)
//
// Each rank lays down a card with a nonce. Rank 0 calls every nonce that it finds, and a rank that
// is here answers rank 0's own. When all have answered, rank 0 hands out the roster: their cards.
// What a group tells through the store afterwards has rank 0's nonce before its keys. So only the
// cards are looked up by the number of a rank, and an old one never answers.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "smp_runtime/transport/key_value_store.h"
#include "smp_runtime/transport/meeting_card.h"

namespace smp::transport {

/// A rank that makes a group.
struct Attendee {
  int rank = 0;
  std::vector<int> names;  ///< of all ranks of the group, for messages
  std::string host;        ///< host_identity()
  /// What this process knows of the end of the rank called so: empty while it is there. May be
  /// null.
  std::function<std::string(int name)> end_of;
  /// Time for which a failure is kept for ranks that are late; later ones wait for their own limit.
  std::chrono::milliseconds late_grace{5000};
  /// Before, uncalled, it looks whether another process has its place.
  std::chrono::milliseconds patience{2000};
};

/// The store of the group that met, and of no other one. While the group is made, whoever waits for
/// a key here learns at once that a rank has failed, or has ended. For one thread.
class Meeting : public KeyValueStore {
 public:
  /// Collective. Takes two to four requests of the store a rank, and polls.
  ///
  /// Throws HostError on all ranks that are here: if one of them fails (see decline()), has ended,
  /// or does not come before the limit, and if two processes come as one rank. `store` stays.
  Meeting(KeyValueStore& store, Attendee who, const WaitLimit& limit);

  /// In place of a meeting, of a rank that cannot make the group: tells the others `reason`. Waits
  /// a few seconds for those that are not here yet. Throws nothing.
  static void decline(KeyValueStore& store, Attendee who, const std::string& reason);

  /// By rank: host_identity().
  [[nodiscard]] std::vector<std::string> hosts() const;
  /// Prefix of each key.
  [[nodiscard]] std::string prefix() const { return leader_ + "/"; }

  /// Throws HostError, saying why, if a rank has failed or ended. A request of the store.
  void look();
  /// Has all others fail with this reason, where none is told yet. Throws nothing.
  void tell(const std::string& reason);

  bool has(const std::string& key) override { return store_.has(prefix() + key); }
  std::optional<std::string> find(const std::string& key) override {
    return store_.find(prefix() + key);
  }
  void set(const std::string& key, const std::string& value) override {
    store_.set(prefix() + key, value);
  }
  std::string get(const std::string& key, const WaitLimit& limit) override;
  [[nodiscard]] const JobSecret* secret() const override { return store_.secret(); }

 private:
  /// State of one rank.
  struct Seat {
    std::optional<MeetingCard> card;
    bool here = false;  ///< it has answered
  };
  struct Failure {
    int rank;
    std::string reason;
  };

  Meeting(KeyValueStore& store, Attendee who, WaitLimit limit, MeetingCard mine);

  [[nodiscard]] int size() const { return static_cast<int>(who_.names.size()); }
  [[nodiscard]] int name(int rank) const { return who_.names[static_cast<size_t>(rank)]; }
  [[nodiscard]] std::optional<MeetingCard> card_of(int rank);

  void meet();
  void gather();
  void update(int rank);
  void be_called();
  [[nodiscard]] std::string await(const std::string& key);
  void seat_all(const std::string& roster);
  [[noreturn]] void fail(const Failure& failure);

  [[nodiscard]] std::optional<Failure> trouble();
  [[nodiscard]] std::optional<Failure> second_process();
  [[nodiscard]] std::optional<Failure> ended() const;
  [[nodiscard]] std::optional<Failure> taken();
  [[nodiscard]] std::string two_processes(const MeetingCard& one, const MeetingCard& other) const;
  [[nodiscard]] std::string late_text(const std::vector<int>& missing) const;

  KeyValueStore& store_;
  const Attendee who_;
  const WaitLimit limit_;
  MeetingCard mine_;
  const Deadline came_ = Clock::now();
  std::optional<MeetingCard> before_;  // what lay in this rank's place
  std::optional<Failure> failure_;     // what rank 0 knows of
  std::string leader_;                 // rank 0's nonce
  std::vector<Seat> seats_;
  Deadline next_look_ = came_;
};

}  // namespace smp::transport
