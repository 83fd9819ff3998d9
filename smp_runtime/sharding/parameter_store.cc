// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/parameter_store.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/sharding/shard_gradients.h"
#include "smp_runtime/sharding/unsharded_units.h"
#include "smp_runtime/sharding/value_reads.h"
#include "smp_runtime/torch_compat/torch_compat.h"

namespace smp::sharding {

using torch::autograd::variable_list;

/// State that hooks of the parameters share with the store, which may go while one of them runs.
struct ParameterStore::State final : ValueReader {
  State(StoreOptions given, std::vector<StoredParameter> stored,
        const std::vector<std::string>& block_names)
      : options(std::move(given)), parameters(std::move(stored)) {
    SMP_CHECK(options.cut || !options.on_demand, "whole parameters are gathered on demand");
    if (options.on_demand) GatheredMemory::keep_heap_small();
    const at::NoGradGuard no_grad;
    const UnitOptions unit_options{.groups = make_groups(),
                                   .compute_type = options.compute_type,
                                   .on_demand = options.on_demand,
                                   .persistence_threshold = options.persistence_threshold,
                                   .bucket = options.bucket,
                                   .cut = options.cut};
    ShardedModel model = make_units(unit_options, parameters, block_names);
    layouts = std::move(model.layouts);
    unit_of = std::move(model.unit_of);
    units = std::move(model.units);
    arenas = std::move(model.arenas);
    unsharded.emplace(UnshardedUnits::Options{.most_unsharded = options.most_unsharded,
                                              .prefetch = options.prefetch},
                      units, *this);
    gradients.emplace(
        ShardGradients::Options{.on_demand = options.on_demand, .bucket = options.bucket},
        unit_options.groups, parameters, unit_of, units, arenas);
    // One after the other: what a parameter held is free before the next unit takes memory.
    for (std::size_t number = 0; number < units.size(); ++number) {
      fill_unit(unit_options, parameters, arenas, units[number]);
      unsharded->adopt(static_cast<int>(number));
    }
    note_published();
  }

  void note_published() {
    for (Arena& arena : arenas) {
      arena.published = static_cast<std::uint32_t>(arena.master._version());
    }
  }

  ~State() override { unwatch(*this); }

  bool begin_read(int number) override {
    const ShardedUnit& unit = at(number);
    const bool stays = unit.users > 0 || unit.held;
    if (!stays && !frames.empty()) {
      unsharded->use(number);
      frames.back().push_back(number);  // until that call is over
    } else if (!stays) {
      const bool backward = torch::autograd::get_current_graph_task_id() != -1;
      if (!alike && !backward && unit.state != UnitState::kUnsharded) return false;
      unsharded->hold(number);
    }
    unsharded->use(number);
    return true;
  }

  void end_read(int number) override { unsharded->end_use(number); }

  at::Tensor values(int number, std::size_t place) override {
    return UnshardedUnits::values(at(number), place);
  }

  void raise(std::exception_ptr error) const override {
    if (options.raise) options.raise(error);
    std::rethrow_exception(error);
  }

  void refuse(int number, std::optional<std::size_t> place) const override {
    const ShardedUnit& unit = units.at(static_cast<std::size_t>(number));
    const std::string name = place ? unit.parameters[*place].name : std::string();
    raise(std::make_exception_ptr(UserCodeError("{}", absence_of(name, unit))));
  }

  void watch(const std::shared_ptr<State>& self) {
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      auto accumulator = torch::autograd::impl::grad_accumulator(parameters[index].tensor);
      if (!accumulator) continue;  // frozen
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [weak = std::weak_ptr(self), index](const variable_list& outputs,
                                              const variable_list& inputs) {
            if (const auto state = weak.lock()) state->gradients->note(index, inputs[0]);
            return outputs;
          }));
      accumulators.push_back(std::move(accumulator));  // a parameter holds its own weakly
    }
  }

  ShardedUnit& at(int number) { return units.at(static_cast<std::size_t>(number)); }

  /// [padded] on every rank of the shard group, of the unit's `shard` [shard]. Collective.
  at::Tensor gathered(int number, const at::Tensor& shard) {
    ShardedUnit& unit = at(number);
    if (unit.layout.degree == 1) return shard;
    at::Tensor whole = at::empty({unit.layout.padded}, shard.options());
    auto pending = unit.group.exchange->start_gather(number, whole, shard.contiguous());
    unit.group.exchange->wait(pending);
    return whole;
  }

  [[nodiscard]] EvenShare share_of(int parameter) const {
    const auto index = static_cast<std::size_t>(parameter);
    const ShardedUnit& unit = units[static_cast<std::size_t>(unit_of.at(index))];
    return even_share(parameters[index].tensor.numel(), unit.layout.degree, unit.group.index);
  }

  std::vector<ReplicationGroup> make_groups() {
    std::vector<ReplicationGroup> groups;
    for (const ReplicationGroupOptions& group : options.groups) {
      ExchangeOptions exchange = group.exchange;
      exchange.unit_name = [this](int unit) { return at(unit).name; };
      exchanges.push_back(std::make_unique<ShardExchange>(std::move(exchange)));
      groups.push_back(
          {.exchange = exchanges.back().get(), .index = group.index, .divisor = group.divisor});
    }
    return groups;
  }

  StoreOptions options;
  std::vector<StoredParameter> parameters;
  std::vector<UnitLayout> layouts;
  std::vector<int> unit_of;
  std::vector<ShardedUnit> units;
  std::vector<Arena> arenas;
  std::vector<std::unique_ptr<ShardExchange>> exchanges;
  std::optional<UnshardedUnits> unsharded;  // both refer to what stands above
  std::optional<ShardGradients> gradients;
  std::vector<torch_compat::NodePtr> accumulators;
  std::vector<std::vector<int>> frames;  ///< units of the calls under way, outermost first
  bool alike = false;                    ///< all ranks run the same
};

ParameterStore::ParameterStore(StoreOptions options, std::vector<StoredParameter> parameters,
                               std::vector<std::string> block_names)
    : state_(std::make_shared<State>(std::move(options), std::move(parameters), block_names)) {
  state_->watch(state_);
}

ParameterStore::~ParameterStore() = default;
const std::vector<UnitLayout>& ParameterStore::layouts() const { return state_->layouts; }
std::vector<int> ParameterStore::unit_of_parameters() const { return state_->unit_of; }

// --- Use ---

void ParameterStore::begin_pass(bool training) { state_->unsharded->begin_pass(training); }
void ParameterStore::set_alike(bool alike) { state_->alike = alike; }

void ParameterStore::begin_step(bool due, int backwards) {
  state_->gradients->begin_step(due, backwards);
}

void ParameterStore::enter(const std::vector<int>& units) {
  state_->frames.push_back(units);
  for (const int number : units) state_->unsharded->use(number);
}

void ParameterStore::leave(const std::vector<at::Tensor>& outputs, bool failed) {
  SMP_CHECK(!state_->frames.empty(), "a module was left that was not entered");
  const std::vector<int> units = std::move(state_->frames.back());
  state_->frames.pop_back();
  if (!failed && !units.empty()) {
    for (const at::Tensor& output : outputs) {
      if (!output.requires_grad()) continue;
      output.register_hook([weak = std::weak_ptr(state_), units](const at::Tensor&) {
        const auto state = weak.lock();
        if (!state) return;
        for (const int number : units) state->unsharded->hold(number);
      });
    }
  }
  for (const int number : units) state_->unsharded->end_use(number);
}

void ParameterStore::end_backward() {
  state_->gradients->end_backward();
  state_->unsharded->release_held();
}

void ParameterStore::finish_step(bool due) {
  state_->gradients->finish_step(due);
  state_->unsharded->release_held();
  is_accumulating_ = !due;
  if (due) has_gradients_ = true;
}

void ParameterStore::zero_gradients() {
  state_->gradients->zero();
  has_gradients_ = is_accumulating_ = false;
}

void ParameterStore::zero_gradients_of(const std::vector<int>& parameters) {
  const at::NoGradGuard no_grad;
  state_->gradients->forget(parameters);
  const std::unordered_set<int> chosen(parameters.begin(), parameters.end());
  for (const OwnedPiece& piece : pieces()) {
    if (!chosen.contains(piece.parameter)) continue;
    state_->arenas[static_cast<std::size_t>(piece.arena)]
        .gradient.narrow(0, piece.offset, piece.elements)
        .zero_();
  }
}

bool ParameterStore::has_gradients() const { return has_gradients_; }
bool ParameterStore::is_accumulating() const { return is_accumulating_; }
std::vector<int> ParameterStore::unreached() const { return state_->gradients->unreached(); }

// --- Masters ---

std::vector<at::Tensor> ParameterStore::masters() const {
  std::vector<at::Tensor> flat;
  for (const Arena& arena : state_->arenas) flat.push_back(arena.master);
  return flat;
}

std::vector<at::Tensor> ParameterStore::gradients() {
  state_->gradients->clear_fresh();
  std::vector<at::Tensor> flat;
  for (const Arena& arena : state_->arenas) flat.push_back(arena.gradient);
  return flat;
}

std::vector<OwnedPiece> ParameterStore::pieces() const {
  std::vector<OwnedPiece> owned;
  for (const ShardedUnit& unit : state_->units) {
    if (!unit.trained) continue;
    for (const Piece& piece : pieces_of(unit.layout, unit.group.index)) {
      owned.push_back({.parameter = piece.parameter,
                       .start = piece.start,
                       .elements = piece.elements,
                       .arena = static_cast<int>(unit.arena),
                       .offset = unit.arena_offset + piece.offset});
    }
  }
  return owned;
}

std::string ParameterStore::not_finite() {
  const at::NoGradGuard no_grad;
  for (const OwnedPiece& piece : pieces()) {
    const at::Tensor& flat = state_->arenas[static_cast<std::size_t>(piece.arena)].gradient;
    if (!at::isfinite(flat.narrow(0, piece.offset, piece.elements)).all().item<bool>()) {
      return state_->parameters[static_cast<std::size_t>(piece.parameter)].name;
    }
  }
  return {};
}

void ParameterStore::publish() {
  const at::NoGradGuard no_grad;
  state_->unsharded->release_held();
  state_->unsharded->drop_idle();
  for (std::size_t number = 0; number < state_->units.size(); ++number) {
    ShardedUnit& unit = state_->units[number];
    SMP_CHECK(unit.always_unsharded || unit.state == UnitState::kSharded,
              "{} was in use when the optimizer stepped", unit.name);
    if (unit.always_unsharded) state_->unsharded->check_untouched(unit);
    if (!unit.own.is_same(unit.master)) unit.own.copy_(unit.master);
    if (!unit.always_unsharded || unit.layout.degree == 1) continue;
    unit.pending = unit.group.exchange->start_gather(static_cast<int>(number), unit.full, unit.own);
  }
  for (ShardedUnit& unit : state_->units) {
    if (unit.pending) unit.group.exchange->wait(unit.pending);
    if (unit.always_unsharded) UnshardedUnits::note_versions(unit);
  }
  state_->note_published();
}

bool ParameterStore::is_published() const {
  return std::ranges::all_of(state_->arenas, [](const Arena& arena) {
    return static_cast<std::uint32_t>(arena.master._version()) == arena.published;
  });
}

void ParameterStore::accept_writes() {
  for (ShardedUnit& unit : state_->units) {
    if (unit.always_unsharded) UnshardedUnits::note_versions(unit);
  }
}

std::vector<at::Tensor> ParameterStore::whole_unit(int number,
                                                   const std::vector<at::Tensor>& arenas) {
  const at::NoGradGuard no_grad;
  const ShardedUnit& unit = state_->at(number);
  at::Tensor shard = unit.master;  // of frozen ones in no arena
  if (unit.trained) shard = arenas.at(unit.arena).narrow(0, unit.arena_offset, shard.numel());
  const at::Tensor whole = state_->gathered(number, shard);
  std::vector<at::Tensor> values;
  for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
    const PlacedParameter& placed = unit.layout.parameters[index];
    const at::IntArrayRef sizes = unit.parameters[index].tensor.sizes();
    values.push_back(whole.narrow(0, placed.offset, placed.elements).view(sizes).cpu().clone());
  }
  return values;
}

at::ScalarType ParameterStore::master_type(int parameter) const {
  return state_->at(state_->unit_of.at(static_cast<std::size_t>(parameter))).master.scalar_type();
}

EvenShare ParameterStore::even_share_of(int parameter) const { return state_->share_of(parameter); }

void ParameterStore::copy_even_shares(const std::vector<int>& parameters,
                                      const std::vector<at::Tensor>& targets) {
  const at::NoGradGuard no_grad;
  std::map<int, at::Tensor> wanted;  // by parameter
  for (std::size_t i = 0; i < parameters.size(); ++i) wanted.emplace(parameters[i], targets.at(i));
  for (int unit = 0; unit < static_cast<int>(state_->units.size()); ++unit) {
    const std::vector<PlacedParameter>& all = state_->at(unit).layout.parameters;
    const auto is_wanted = [&](const PlacedParameter& placed) {
      return wanted.contains(placed.parameter);
    };
    if (std::ranges::none_of(all, is_wanted)) continue;
    const at::Tensor whole = state_->gathered(unit, state_->at(unit).master);
    for (const PlacedParameter& placed : all) {
      if (!is_wanted(placed)) continue;
      const EvenShare share = state_->share_of(placed.parameter);
      const at::Tensor& target = wanted.at(placed.parameter);
      SMP_CHECK(target.numel() == share.length, "a target of {} for a share of {}", target.numel(),
                share.length);
      target.narrow(0, 0, share.elements)
          .copy_(whole.narrow(0, placed.offset + share.start, share.elements));
      target.narrow(0, share.elements, share.length - share.elements).zero_();
    }
  }
}

void ParameterStore::assign(int parameter, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  ShardedUnit& unit = state_->at(state_->unit_of.at(static_cast<std::size_t>(parameter)));
  const StoredParameter& target = state_->parameters[static_cast<std::size_t>(parameter)];
  if (value.sizes() != target.tensor.sizes()) {
    throw UserCodeError("a value of shape {} was given for parameter {} of shape {}",
                        fmt::join(value.sizes(), "x"), target.name,
                        fmt::join(target.tensor.sizes(), "x"));
  }
  const at::Tensor flat = value.reshape({-1});
  for (const Piece& piece : pieces_of(unit.layout, unit.group.index)) {
    if (piece.parameter != parameter) continue;
    unit.master.narrow(0, piece.offset, piece.elements)
        .copy_(flat.narrow(0, piece.start, piece.elements));
  }
}

StoreUse ParameterStore::use() const {
  StoreUse use{.peak_live = state_->unsharded->peak_bytes(),
               .spare = state_->unsharded->spare_bytes()};
  for (const ShardedUnit& unit : state_->units) {
    const auto bytes = static_cast<std::int64_t>(unit.master.nbytes());
    use.shards += bytes;
    const bool apart = !unit.own.is_same(unit.master) && !unit.own.is_alias_of(unit.full);
    if (apart) use.shards += static_cast<std::int64_t>(unit.own.nbytes());
    const auto full = unit.layout.padded * static_cast<std::int64_t>(unit.full.element_size());
    if (unit.always_unsharded) {
      use.persistent += full;
    } else if (unit.state != UnitState::kSharded) {
      use.live += full;
    }
  }
  for (const Arena& arena : state_->arenas) {
    use.gradients += static_cast<std::int64_t>(arena.gradient.nbytes());
  }
  return use;
}

ShardExchange::Traffic ParameterStore::traffic() const {
  ShardExchange::Traffic sum;
  for (const auto& exchange : state_->exchanges) sum += exchange->traffic();
  return sum;
}

Prefetched ParameterStore::prefetched() const { return state_->unsharded->prefetched(); }

}  // namespace smp::sharding
