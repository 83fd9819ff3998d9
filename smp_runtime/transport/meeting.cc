// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/meeting.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/transport/process_watch.h"

namespace smp::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// Between two looks for what may have gone wrong.
constexpr milliseconds kLookInterval{20};
/// By so much the clocks of two hosts may differ.
constexpr int64_t kClockSkewMs = 1000;
/// Before the text of a failure, in place of a roster.
constexpr char kRefusal = '!';
constexpr char kBetweenCards = '\x1e';
constexpr const char* kFailureKey = "failure";

std::string card_key(int rank) { return fmt::format("card/{}", rank); }
std::string call_key(const std::string& nonce) { return "call/" + nonce; }
std::string refusal_key(const std::string& nonce) { return "refusal/" + nonce; }
std::string roster_key(const std::string& leader) { return "roster/" + leader; }
std::string answer_key(const std::string& leader, int rank) {
  return fmt::format("answer/{}/{}", leader, rank);
}

/// Sleeps longer from time to time: soon enough for few ranks, and seldom for a store with many.
class Pace {
 public:
  explicit Pace(int ranks) : longest_(10'000 + 500 * ranks) {}
  void sleep() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(next_ * 3 / 2, longest_);
  }

 private:
  microseconds next_{50};
  const microseconds longest_;
};

}  // namespace

Meeting::Meeting(KeyValueStore& store, Attendee who, WaitLimit limit, MeetingCard mine)
    : store_(store), who_(std::move(who)), limit_(std::move(limit)), mine_(std::move(mine)) {
  seats_.resize(who_.names.size());
  seats_[static_cast<size_t>(who_.rank)] = {.card = mine_, .here = true};
}

Meeting::Meeting(KeyValueStore& store, Attendee who, const WaitLimit& limit)
    : Meeting(store, who, limit, MeetingCard::fresh(who.host)) {
  meet();
}

void Meeting::decline(KeyValueStore& store, Attendee who, const std::string& reason) {
  try {
    MeetingCard card = MeetingCard::fresh(who.host);
    card.failed = who.rank;
    card.reason = fmt::format("rank {} cannot make the group: {}",
                              who.names[static_cast<size_t>(who.rank)], reason);
    const WaitLimit limit = WaitLimit::after(who.late_grace, "making a group");
    Meeting(store, std::move(who), limit, std::move(card)).meet();
  } catch (const std::exception&) {
    // Either the failure that was to be told, or the loss of the store: the caller has a better
    // error.
  }
}

std::vector<std::string> Meeting::hosts() const {
  std::vector<std::string> hosts;
  for (const Seat& seat : seats_) hosts.push_back(seat.card->host);
  return hosts;
}

std::optional<MeetingCard> Meeting::card_of(int rank) {
  const std::optional<std::string> text = store_.find(card_key(rank));
  return text ? MeetingCard::parse(*text) : std::nullopt;
}

void Meeting::meet() {
  if (size() == 1) {
    leader_ = mine_.nonce;
    return;
  }
  before_ = card_of(who_.rank);
  store_.set(card_key(who_.rank), mine_.text());
  if (who_.rank == 0) {
    gather();
  } else if (mine_.failed >= 0) {
    fail({mine_.failed, mine_.reason});
  } else {
    be_called();
  }
}

/// Rank 0's part: returns when all have answered; else tells all that are here why not, and throws.
void Meeting::gather() {
  leader_ = mine_.nonce;
  if (mine_.failed >= 0) failure_ = {mine_.failed, mine_.reason};
  Deadline end = kNever;
  for (Pace pace(size());; pace.sleep()) {
    std::vector<int> missing;
    for (int rank = 1; rank < size(); ++rank) {
      update(rank);
      if (!seats_[static_cast<size_t>(rank)].here) missing.push_back(rank);
    }
    if (!failure_) failure_ = missing.empty() ? second_process() : trouble();
    if (failure_) std::erase(missing, failure_->rank);
    if (missing.empty()) break;
    const auto now = Clock::now();
    if (!failure_ && now >= limit_.deadline) {
      failure_ = {missing.front(), late_text(missing)};
      break;
    }
    if (failure_) end = std::min(end, now + who_.late_grace);
    if (now >= end) break;
  }
  if (failure_) {
    store_.set(roster_key(leader_), kRefusal + failure_->reason);
    throw HostError(failure_->reason);
  }
  std::vector<std::string> cards;
  for (const Seat& seat : seats_) cards.push_back(seat.card->text());
  store_.set(roster_key(leader_),
             fmt::format("{}", fmt::join(cards, std::string(1, kBetweenCards))));
}

/// The answer is read before the card: what has replaced a card that was called and answered is of
/// a second process.
void Meeting::update(int rank) {
  Seat& seat = seats_[static_cast<size_t>(rank)];
  const auto answer = seat.here ? std::nullopt : store_.find(answer_key(leader_, rank));
  if (answer) seat.here = true;
  std::optional<MeetingCard> card = card_of(rank);
  if (!card) return;
  const bool changed = !seat.card || seat.card->nonce != card->nonce;
  const bool others_answer = answer && (!seat.card || *answer != seat.card->nonce);
  if (!failure_ && ((changed && seat.here) || others_answer)) {
    failure_ = {rank, two_processes(*seat.card, *card)};
  }
  if (changed) store_.set(call_key(card->nonce), leader_);
  seat.card = std::move(card);
  if (!failure_ && seat.here && seat.card->failed >= 0) {
    failure_ = {seat.card->failed, seat.card->reason};
  }
}

/// The other ranks' part: returns when rank 0 has handed out the roster.
void Meeting::be_called() {
  leader_ = await(call_key(mine_.nonce));
  store_.set(answer_key(leader_, who_.rank), mine_.nonce);
  const std::string roster = await(roster_key(leader_));
  if (const std::optional<Failure> failure = second_process()) fail(*failure);
  seat_all(roster);
}

std::string Meeting::await(const std::string& key) {
  // Rank 0 knows who is missing: its answer comes first.
  const Deadline deadline = limit_.deadline + who_.late_grace;
  for (Pace pace(size());; pace.sleep()) {
    if (const std::optional<std::string> value = store_.find(key)) return *value;
    if (const std::optional<Failure> failure = trouble()) fail(*failure);
    if (Clock::now() >= deadline) fail({0, late_text({0})});
  }
}

void Meeting::seat_all(const std::string& roster) {
  if (roster.starts_with(kRefusal)) throw HostError(roster.substr(1));
  const std::vector<std::string> cards = split(roster, kBetweenCards);
  SMP_CHECK(cards.size() == seats_.size(), "a roster of {} for {} ranks", cards.size(), size());
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    seats_[rank] = {.card = MeetingCard::parse(cards[rank]), .here = true};
    SMP_CHECK(seats_[rank].card, "rank {} has no card in the roster", rank);
  }
}

/// Fails a rank other than 0, once rank 0 knows. A second process of this rank tells it by itself.
void Meeting::fail(const Failure& failure) {
  mine_.failed = failure.rank;
  mine_.reason = failure.reason;
  const auto has_place = [this] {
    const std::optional<MeetingCard> card = card_of(who_.rank);
    return card && card->nonce == mine_.nonce;
  };
  if (has_place()) store_.set(card_key(who_.rank), mine_.text());
  const Deadline deadline = Clock::now() + who_.late_grace;
  for (Pace pace(size()); leader_.empty() && has_place() && Clock::now() < deadline; pace.sleep()) {
    if (const auto leader = store_.find(call_key(mine_.nonce))) leader_ = *leader;
  }
  if (!leader_.empty()) {
    store_.set(answer_key(leader_, who_.rank), mine_.nonce);
    tell(failure.reason);  // for those that have a roster already
  }
  throw HostError(failure.reason);
}

std::optional<Meeting::Failure> Meeting::trouble() {
  const auto now = Clock::now();
  if (now < next_look_) return std::nullopt;
  next_look_ = now + kLookInterval;
  limit_.look();
  if (std::optional<Failure> failure = second_process()) return failure;
  if (now > came_ + who_.patience) {
    if (const std::optional<Failure> failure = taken()) return failure;
  }
  return ended();
}

/// One that has laid its card over this one's, or has told of it.
std::optional<Meeting::Failure> Meeting::second_process() {
  if (const auto refusal = store_.find(refusal_key(mine_.nonce)))
    return Failure{who_.rank, *refusal};
  const std::optional<MeetingCard> card = card_of(who_.rank);
  if (!card || card->nonce == mine_.nonce) return std::nullopt;
  Failure failure{who_.rank, two_processes(mine_, *card)};
  store_.set(refusal_key(card->nonce), failure.reason);
  return failure;
}

std::optional<Meeting::Failure> Meeting::ended() const {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == who_.rank) continue;
    const Seat& seat = seats_[static_cast<size_t>(rank)];
    if (seat.here && seat.card && seat.card->host == who_.host &&
        ProcessWatch(static_cast<pid_t>(seat.card->process)).has_ended()) {
      return Failure{rank,
                     fmt::format("{}: the process of rank {} (pid {} on this host) has ended; "
                                 "see its output",
                                 limit_.operation, name(rank), seat.card->process)};
    }
    if (!who_.end_of) continue;
    if (const std::string end = who_.end_of(name(rank)); !end.empty()) {
      return Failure{rank, fmt::format("{}: {}", limit_.operation, end)};
    }
  }
  return std::nullopt;
}

/// A group that was made without this process, since it began: it comes second to its place.
std::optional<Meeting::Failure> Meeting::taken() {
  if (!before_ || before_->same_process(mine_)) return std::nullopt;
  if (before_->came_ms < mine_.began_ms + kClockSkewMs) return std::nullopt;
  const auto leader =
      who_.rank == 0 ? std::optional(before_->nonce) : store_.find(call_key(before_->nonce));
  const auto roster = leader ? store_.find(roster_key(*leader)) : std::nullopt;
  if (!roster || roster->starts_with(kRefusal)) return std::nullopt;
  for (const std::string& text : split(*roster, kBetweenCards)) {
    const std::optional<MeetingCard> card = MeetingCard::parse(text);
    if (!card || card->same_process(mine_)) return std::nullopt;
  }
  return Failure{who_.rank, two_processes(*before_, mine_)};
}

std::string Meeting::two_processes(const MeetingCard& one, const MeetingCard& other) const {
  const auto seat = std::ranges::find_if(seats_, [&](const Seat& each) {
    return each.card && (each.card->nonce == one.nonce || each.card->nonce == other.nonce);
  });
  SMP_CHECK(seat != seats_.end(), "two processes of no rank");
  return fmt::format(
      "{}: two processes are rank {}: {} and {}; each needs a RANK of its own (do two hosts have "
      "one --node_rank?)",
      limit_.operation, name(static_cast<int>(seat - seats_.begin())), one.whose(), other.whose());
}

std::string Meeting::late_text(const std::vector<int>& missing) const {
  std::vector<int> names;
  bool old = before_ && !before_->same_process(mine_);
  for (const int rank : missing) {
    names.push_back(name(rank));
    old = old || seats_[static_cast<size_t>(rank)].card;
  }
  return fmt::format(
      "{}: rank {} waited {} ms for rank(s) {}, which did not come; do all ranks of the group make "
      "it, and is the timeout long enough?{}",
      limit_.operation, name(who_.rank), limit_.timeout.count(), fmt::join(names, ", "),
      old ? " The store holds keys of an earlier group of this name, or of another process with "
            "one of these ranks"
          : "");
}

void Meeting::look() {
  const auto now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kLookInterval;
  limit_.look();
  if (const auto told = find(kFailureKey)) throw HostError(*told);
  if (const std::optional<Failure> failure = ended()) throw HostError(failure->reason);
}

void Meeting::tell(const std::string& reason) {
  try {
    if (size() > 1 && !has(kFailureKey)) set(kFailureKey, reason);
  } catch (const std::exception&) {
    // The store is lost, and with it whom to tell.
  }
}

std::string Meeting::get(const std::string& key, const WaitLimit& limit) {
  for (Pace pace(size());; pace.sleep()) {
    if (const std::optional<std::string> value = find(key)) return *value;
    look();
    if (Clock::now() >= limit.deadline) {
      throw HostError(
          "{}: rank {} waited {} ms for \"{}\", which another rank of the group is to "
          "tell; see the output of the others",
          limit.operation, name(who_.rank), limit.timeout.count(), key);
    }
  }
}

}  // namespace smp::transport
