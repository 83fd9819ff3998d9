// SPDX-License-Identifier: Apache-2.0
// Values that do not travel over the caller of the modules that make and use them: one rank's part.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "smp_runtime/pipeline/envelope.h"
#include "smp_runtime/pipeline/value_store.h"
#include "smp_runtime/transport/transport.h"

namespace smp::pipeline {

/// Requests wait here for the values that they take; results leave parts of theirs here, or send
/// them on. Belongs to the holder of the run token.
class ValueExchange {
 public:
  using Payload = std::shared_ptr<transport::Payload>;
  using Named = std::vector<std::pair<ValueId, Payload>>;
  using Send = std::function<void(int destination, Envelope)>;

  ValueExchange(int rank, Send send) : rank_(rank), send_(std::move(send)) {}

  /// Returns true if the request's inputs are here; else the request waits for receive().
  [[nodiscard]] bool admit(Envelope& request);
  /// A value has come: the requests that need not wait any more.
  [[nodiscard]] std::vector<Envelope> receive(Envelope value);
  [[nodiscard]] const std::vector<Envelope>& waiting() const { return waiting_; }

  /// Inputs of an admitted request.
  [[nodiscard]] Named take(const std::vector<ValueId>& ids);
  /// Takes the outputs of `request` that are kept: a value of a forward stays here for whoever may
  /// ask for it, and goes to the rank that is known to; a gradient has one user.
  void give(const Envelope& request, Named values);
  /// Answers a request to send a value.
  void answer(const Envelope& request);

  /// Has `holder` send a value to `destination`, which will need it.
  void ask(int holder, ValueId id, int destination, int64_t microbatch);
  /// The same for this rank, which waits: receive() until fetched() gives it, once.
  void begin_fetch(int holder, ValueId id, int64_t microbatch);
  [[nodiscard]] Payload fetched();
  /// The holder of what begin_fetch() asked for and fetched() has not given yet.
  [[nodiscard]] std::optional<int> fetches_from() const;

  /// Nobody will ask `holder` for the value again; the holder learns of it with the next message.
  void release(int holder, ValueId id) { released_[holder].push_back(id); }
  [[nodiscard]] std::vector<ValueId> take_released(int holder);
  /// The other side of it.
  void forget(const std::vector<ValueId>& ids);
  void forget_microbatch(int64_t microbatch) { values_.drop_microbatch(microbatch); }
  /// Forgets values that came behind the end of their microbatch.
  void forget_values() { values_.clear(); }
  void clear();

  /// Values that this rank holds; none between steps.
  [[nodiscard]] size_t size() const { return values_.size(); }

 private:
  struct Fetch {
    int holder;
    ValueId id;
    Payload value = nullptr;
  };

  int rank_;
  Send send_;
  ValueStore values_;
  std::vector<Envelope> waiting_;
  std::map<int, std::vector<ValueId>> released_;  ///< by holder, not sent yet
  std::optional<Fetch> fetch_;
};

}  // namespace smp::pipeline
