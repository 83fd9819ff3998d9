// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/unsharded_units.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "smp_runtime/core/error.h"

namespace smp::sharding {
namespace {

constexpr std::int64_t kFetchedAhead = 50'000'000;  // elements fetched ahead at once
constexpr std::size_t kLookahead = 16;              // needs

}  // namespace

UnshardedUnits::UnshardedUnits(Options options, std::vector<ShardedUnit>& units,
                               ValueReader& reader)
    : options_(options), units_(units), reader_(reader) {}

void UnshardedUnits::adopt(int number) {
  ShardedUnit& unit = at(number);
  if (unit.always_unsharded) {
    unit.state = UnitState::kUnsharded;
    unit.shown = unit.full;
    show(unit);
    return;
  }
  unit.shown = watch(unit.full, reader_, number);
  for (std::size_t place = 0; place < unit.parameters.size(); ++place) {
    unit.placeholders.push_back(placeholder(unit.full, unit.parameters[place].tensor.sizes(),
                                            absence_of(unit.parameters[place].name, unit), reader_,
                                            number, place));
  }
  hide(unit);
  memory_.take_away(unit.full);
}

void UnshardedUnits::begin_pass(bool training) {
  order_ = &orders_[training ? 0 : 1];
  order_->begin();
  prefetched_ = {};
}

void UnshardedUnits::use(int number) {
  need(number);
  ++at(number).users;
}

void UnshardedUnits::end_use(int number) {
  --at(number).users;
  release(number);
}

void UnshardedUnits::hold(int number) {
  ShardedUnit& unit = at(number);
  if (unit.always_unsharded || unit.held) return;
  give_back_held(order_->expected(0) == number ? 1 : 0);  // before this one takes memory
  need(number);
  unit.held = true;
  held_.push_back(number);
}

void UnshardedUnits::release_held() { give_back_held(0); }

void UnshardedUnits::give_back_held(std::size_t ahead) {
  for (const int number : std::exchange(held_, {})) {
    at(number).held = false;
    release(number, ahead);
  }
}

Prefetched UnshardedUnits::prefetched() const {
  Prefetched result = prefetched_;
  const GatherOrder::Score score = order_->score();
  result.expected = static_cast<std::int64_t>(score.expected);
  result.needs = static_cast<std::int64_t>(score.needs);
  return result;
}

at::Tensor UnshardedUnits::values(const ShardedUnit& unit, std::size_t place) {
  const PlacedParameter& placed = unit.layout.parameters[place];
  return unit.shown.narrow(0, placed.offset, placed.elements)
      .view(unit.parameters[place].tensor.sizes());
}

void UnshardedUnits::show(ShardedUnit& unit) {
  const UnwatchedReads unwatched;
  for (std::size_t place = 0; place < unit.parameters.size(); ++place) {
    unit.parameters[place].tensor.set_data(values(unit, place));
  }
  note_versions(unit);
}

void UnshardedUnits::hide(ShardedUnit& unit) {
  const UnwatchedReads unwatched;
  for (std::size_t place = 0; place < unit.parameters.size(); ++place) {
    unit.parameters[place].tensor.set_data(unit.placeholders[place]);
  }
  note_versions(unit);
}

void UnshardedUnits::note_versions(ShardedUnit& unit) {
  unit.versions.clear();
  for (const StoredParameter& parameter : unit.parameters) {
    unit.versions.push_back(static_cast<std::uint32_t>(parameter.tensor._version()));
  }
}

void UnshardedUnits::check_untouched(const ShardedUnit& unit) {
  for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
    const at::Tensor& parameter = unit.parameters[index].tensor;
    const at::Tensor& owner =
        unit.state == UnitState::kUnsharded ? unit.full : unit.placeholders[index];
    // Not is_alias_of(), which asks for the address of other memory than this.
    const bool same_memory =
        parameter.storage().unsafeGetStorageImpl() == owner.storage().unsafeGetStorageImpl();
    const bool same_value =
        static_cast<std::uint32_t>(parameter._version()) == unit.versions[index];
    if (same_memory && same_value) continue;
    const int degree = unit.layout.degree;
    const std::string facts = fmt::format(
        "parameter {} was {} outside of the optimizer; its values are {} by the library, so that "
        "the change would be lost",
        unit.parameters[index].name, same_memory ? "changed in place" : "given other memory",
        degree > 1 ? fmt::format("sharded over {} ranks and kept", degree)
                   : "copies of masters that are kept");
    throw UserCodeError("{}", advised(facts, Advice::kLostWrite));
  }
}

void UnshardedUnits::need(int number) {
  ShardedUnit& unit = at(number);
  if (unit.always_unsharded || unit.users > 0 || unit.held) return;
  const at::NoGradGuard no_grad;
  const bool followed = order_->expected(0).has_value();
  if (!order_->note(number) && followed) drop_idle();
  if (unit.state == UnitState::kUnsharded) {
    fetch_ahead();
    return;
  }
  ++prefetched_.gathers;
  if (unit.state == UnitState::kSharded) {
    if (elements_ + unit.layout.padded > options_.most_unsharded) drop_idle();
    start(number);
  } else {
    ++prefetched_.ahead;
  }
  fetch_ahead();
  arrive(number);
}

void UnshardedUnits::start(int number) {
  ShardedUnit& unit = at(number);
  check_untouched(unit);
  memory_.give(unit.full, unit.layout.padded);
  elements_ += unit.layout.padded;
  inflight_ += unit.layout.padded;
  bytes_ += static_cast<std::int64_t>(unit.full.nbytes());
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  unit.state = UnitState::kInflight;
  unit.pending = unit.group.exchange->start_gather(number, unit.full, unit.own);
}

void UnshardedUnits::arrive(int number) {
  ShardedUnit& unit = at(number);
  if (unit.state == UnitState::kInflight) {
    inflight_ -= unit.layout.padded;
    unit.state = UnitState::kUnsharded;
    unit.group.exchange->wait(unit.pending);
  }
  show(unit);
}

void UnshardedUnits::fetch_ahead() {
  if (!options_.prefetch) return;
  for (std::size_t ahead = 0; ahead < kLookahead; ++ahead) {
    const std::optional<int> next = order_->expected(ahead);
    if (!next) return;
    ShardedUnit& unit = at(*next);
    if (unit.state != UnitState::kSharded) continue;
    const std::int64_t size = unit.layout.padded;
    if (elements_ + size > options_.most_unsharded) return;
    if (inflight_ > 0 && inflight_ + size > kFetchedAhead) return;
    start(*next);
  }
}

void UnshardedUnits::release(int number, std::size_t ahead) {
  ShardedUnit& unit = at(number);
  if (unit.always_unsharded || unit.state != UnitState::kUnsharded || unit.users > 0 || unit.held)
    return;
  if (order_->expected(ahead) == number && elements_ <= options_.most_unsharded) return;
  discard(number);
}

void UnshardedUnits::discard(int number) {
  ShardedUnit& unit = at(number);
  const at::NoGradGuard no_grad;
  if (unit.state == UnitState::kInflight) arrive(number);
  check_untouched(unit);
  hide(unit);
  bytes_ -= static_cast<std::int64_t>(unit.full.nbytes());
  elements_ -= unit.layout.padded;
  memory_.take_away(unit.full);
  unit.state = UnitState::kSharded;
}

void UnshardedUnits::drop_idle() {
  for (std::size_t number = 0; number < units_.size(); ++number) {
    const ShardedUnit& unit = units_[number];
    if (unit.always_unsharded || unit.state == UnitState::kSharded || unit.users > 0 || unit.held)
      continue;
    discard(static_cast<int>(number));
  }
}

}  // namespace smp::sharding
