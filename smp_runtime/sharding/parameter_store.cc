// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/parameter_store.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/sharding/shard_gradients.h"
#include "smp_runtime/sharding/unsharded_units.h"

namespace smp::sharding {

using torch::autograd::variable_list;

class ParameterStore::Core {
 public:
  Core(StoreOptions options, std::vector<StoredParameter> parameters,
       std::vector<std::string> block_names)
      : options_(std::move(options)), parameters_(std::move(parameters)) {
    SMP_CHECK(options_.cut || !options_.on_demand, "whole parameters are gathered on demand");
    if (options_.on_demand) GatheredMemory::keep_heap_small();
    const at::NoGradGuard no_grad;
    const UnitOptions unit_options{.groups = make_groups(),
                                   .compute_type = options_.compute_type,
                                   .on_demand = options_.on_demand,
                                   .persistence_threshold = options_.persistence_threshold,
                                   .bucket = options_.bucket,
                                   .cut = options_.cut};
    ShardedModel model = make_units(unit_options, parameters_, block_names);
    layouts_ = std::move(model.layouts);
    unit_of_ = std::move(model.unit_of);
    units_ = std::move(model.units);
    arenas_ = std::move(model.arenas);
    unsharded_.emplace(UnshardedUnits::Options{.most_unsharded = options_.most_unsharded,
                                               .prefetch = options_.prefetch},
                       units_);
    gradients_.emplace(
        ShardGradients::Options{.on_demand = options_.on_demand, .bucket = options_.bucket},
        unit_options.groups, parameters_, unit_of_, units_, arenas_,
        [this](int unit) { unsharded_->reshard(unit); });
    // One after the other: what a parameter held is free before the next unit takes memory.
    for (std::size_t number = 0; number < units_.size(); ++number) {
      fill_unit(unit_options, parameters_, arenas_, units_[number]);
      unsharded_->adopt(static_cast<int>(number));
    }
  }

  void watch(const std::shared_ptr<Core>& self) {
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
      auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[index].tensor);
      if (!accumulator) continue;  // frozen
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [weak = std::weak_ptr<Core>(self), index](const variable_list& outputs,
                                                    const variable_list& inputs) {
            if (const auto core = weak.lock()) core->gradients_->note(index, inputs[0]);
            return outputs;
          }));
      accumulators_.push_back(std::move(accumulator));  // a parameter holds its own weakly
    }
    self_ = self;
  }

  [[nodiscard]] const std::vector<UnitLayout>& layouts() const { return layouts_; }
  [[nodiscard]] const std::vector<int>& unit_of() const { return unit_of_; }

  // --- Use ---

  void begin_pass(bool training) { unsharded_->begin_pass(training); }

  void enter(const std::vector<int>& units) {
    frames_.push_back(units);
    for (const int number : units) unsharded_->use(number);
  }

  void read(int number) {
    const ShardedUnit& unit = at(number);
    if (frames_.empty() || unit.always_unsharded || unit.users > 0) return;
    if (unit.held && unit.state == UnitState::kUnsharded) return;
    unsharded_->use(number);
    frames_.back().push_back(number);
  }

  void leave(const std::vector<at::Tensor>& outputs, bool failed) {
    SMP_CHECK(!frames_.empty(), "a module was left that was not entered");
    const std::vector<int> units = std::move(frames_.back());
    frames_.pop_back();
    if (!failed && !units.empty()) {
      for (const at::Tensor& output : outputs) {
        if (!output.requires_grad()) continue;
        output.register_hook([weak = self_, units](const at::Tensor&) {
          const auto core = weak.lock();
          if (!core) return;
          for (const int number : units) core->unsharded_->hold(number);
        });
      }
    }
    for (const int number : units) unsharded_->end_use(number);
  }

  void finish_step(bool due) {
    gradients_->finish_step(due);
    is_accumulating_ = !due;
    if (due) has_gradients_ = true;
  }

  void zero_gradients() {
    gradients_->zero();
    has_gradients_ = is_accumulating_ = false;
  }

  [[nodiscard]] bool has_gradients() const { return has_gradients_; }
  [[nodiscard]] bool is_accumulating() const { return is_accumulating_; }

  ShardGradients& accumulated() { return *gradients_; }

  // --- Masters ---

  [[nodiscard]] std::vector<at::Tensor> masters() const {
    std::vector<at::Tensor> flat;
    for (const Arena& arena : arenas_) flat.push_back(arena.master);
    return flat;
  }

  std::vector<at::Tensor> gradients() {
    const at::NoGradGuard no_grad;
    gradients_->clear_fresh();
    std::vector<at::Tensor> flat;
    for (const Arena& arena : arenas_) flat.push_back(arena.gradient);
    return flat;
  }

  [[nodiscard]] std::vector<OwnedPiece> pieces() const {
    std::vector<OwnedPiece> owned;
    for (const ShardedUnit& unit : units_) {
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

  std::string not_finite() {
    const at::NoGradGuard no_grad;
    for (const OwnedPiece& piece : pieces()) {
      const at::Tensor& flat = arenas_[static_cast<std::size_t>(piece.arena)].gradient;
      if (!at::isfinite(flat.narrow(0, piece.offset, piece.elements)).all().item<bool>()) {
        return parameters_[static_cast<std::size_t>(piece.parameter)].name;
      }
    }
    return {};
  }

  void publish() {
    const at::NoGradGuard no_grad;
    unsharded_->drop_idle();
    for (std::size_t number = 0; number < units_.size(); ++number) {
      ShardedUnit& unit = units_[number];
      SMP_CHECK(unit.always_unsharded || unit.state == UnitState::kSharded,
                "{} was in use when the optimizer stepped", unit.name);
      if (unit.always_unsharded) unsharded_->check_untouched(unit);
      if (!unit.own.is_same(unit.master)) unit.own.copy_(unit.master);
      if (!unit.always_unsharded || unit.layout.degree == 1) continue;
      unit.pending =
          unit.group.exchange->start_gather(static_cast<int>(number), unit.full, unit.own);
    }
    for (ShardedUnit& unit : units_) {
      if (unit.pending) unit.group.exchange->wait(unit.pending);
      if (unit.always_unsharded) UnshardedUnits::note_versions(unit);
    }
  }

  void accept_writes() {
    for (ShardedUnit& unit : units_) {
      if (unit.always_unsharded) UnshardedUnits::note_versions(unit);
    }
  }

  std::vector<at::Tensor> whole_unit(int number) {
    const at::NoGradGuard no_grad;
    const ShardedUnit& unit = at(number);
    const at::Tensor whole = gathered_masters(number);
    std::vector<at::Tensor> values;
    for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
      const PlacedParameter& placed = unit.layout.parameters[index];
      values.push_back(whole.narrow(0, placed.offset, placed.elements)
                           .view(unit.parameters[index].tensor.sizes())
                           .cpu()
                           .clone());
    }
    return values;
  }

  [[nodiscard]] EvenShare share_of(int parameter) const {
    const auto index = static_cast<std::size_t>(parameter);
    const ShardedUnit& unit = units_[static_cast<std::size_t>(unit_of_.at(index))];
    return even_share(parameters_[index].tensor.numel(), unit.layout.degree, unit.group.index);
  }

  void copy_even_shares(const std::vector<int>& parameters,
                        const std::vector<at::Tensor>& targets) {
    const at::NoGradGuard no_grad;
    std::map<int, at::Tensor> wanted;  // by parameter
    for (std::size_t i = 0; i < parameters.size(); ++i)
      wanted.emplace(parameters[i], targets.at(i));
    for (std::size_t number = 0; number < units_.size(); ++number) {
      const std::vector<PlacedParameter>& all = units_[number].layout.parameters;
      const auto is_wanted = [&](const PlacedParameter& placed) {
        return wanted.contains(placed.parameter);
      };
      if (std::ranges::none_of(all, is_wanted)) continue;
      const at::Tensor whole = gathered_masters(static_cast<int>(number));
      for (const PlacedParameter& placed : all) {
        if (!is_wanted(placed)) continue;
        const EvenShare share = share_of(placed.parameter);
        const at::Tensor& target = wanted.at(placed.parameter);
        SMP_CHECK(target.numel() == share.length, "a target of {} for a share of {}",
                  target.numel(), share.length);
        target.narrow(0, 0, share.elements)
            .copy_(whole.narrow(0, placed.offset + share.start, share.elements));
        target.narrow(0, share.elements, share.length - share.elements).zero_();
      }
    }
  }

  void assign(int parameter, const at::Tensor& value) {
    const at::NoGradGuard no_grad;
    ShardedUnit& unit = at(unit_of_.at(static_cast<std::size_t>(parameter)));
    const StoredParameter& target = parameters_[static_cast<std::size_t>(parameter)];
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

  [[nodiscard]] StoreUse use() const {
    StoreUse use{.peak_live = unsharded_->peak_bytes(), .spare = unsharded_->spare_bytes()};
    for (const ShardedUnit& unit : units_) {
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
    for (const Arena& arena : arenas_) {
      use.gradients += static_cast<std::int64_t>(arena.gradient.nbytes());
    }
    return use;
  }

  [[nodiscard]] ShardExchange::Traffic traffic() const {
    ShardExchange::Traffic sum;
    for (const auto& exchange : exchanges_) {
      const ShardExchange::Traffic& one = exchange->traffic();
      sum.gathered_bytes += one.gathered_bytes;
      sum.reduced_bytes += one.reduced_bytes;
      sum.replica_bytes += one.replica_bytes;
    }
    return sum;
  }

  [[nodiscard]] Prefetched prefetched() const { return unsharded_->prefetched(); }

 private:
  ShardedUnit& at(int number) { return units_.at(static_cast<std::size_t>(number)); }

  /// [padded] on every rank of the shard group. Collective.
  at::Tensor gathered_masters(int number) {
    ShardedUnit& unit = at(number);
    if (unit.layout.degree == 1) return unit.master;
    at::Tensor whole = at::empty({unit.layout.padded}, unit.master.options());
    ShardExchange& exchange = *unit.group.exchange;
    auto pending = exchange.start_gather(number, whole, unit.master.contiguous());
    exchange.wait(pending);
    return whole;
  }

  std::vector<ReplicationGroup> make_groups() {
    std::vector<ReplicationGroup> groups;
    for (const ReplicationGroupOptions& group : options_.groups) {
      ExchangeOptions options = group.exchange;
      options.unit_name = [this](int unit) { return at(unit).name; };
      exchanges_.push_back(std::make_unique<ShardExchange>(std::move(options)));
      groups.push_back(
          {.exchange = exchanges_.back().get(), .index = group.index, .divisor = group.divisor});
    }
    return groups;
  }

  StoreOptions options_;
  std::vector<StoredParameter> parameters_;
  std::vector<UnitLayout> layouts_;
  std::vector<int> unit_of_;
  std::vector<ShardedUnit> units_;
  std::vector<Arena> arenas_;
  std::vector<std::unique_ptr<ShardExchange>> exchanges_;
  std::optional<UnshardedUnits> unsharded_;  // both refer to what stands above
  std::optional<ShardGradients> gradients_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::weak_ptr<Core> self_;
  bool has_gradients_ = false;
  bool is_accumulating_ = false;

  std::vector<std::vector<int>> frames_;  ///< units of the calls under way, outermost first
};

ParameterStore::ParameterStore(StoreOptions options, std::vector<StoredParameter> parameters,
                               std::vector<std::string> block_names)
    : core_(std::make_shared<Core>(std::move(options), std::move(parameters),
                                   std::move(block_names))) {
  core_->watch(core_);
}
ParameterStore::~ParameterStore() = default;

const std::vector<UnitLayout>& ParameterStore::layouts() const { return core_->layouts(); }
std::vector<int> ParameterStore::unit_of_parameters() const { return core_->unit_of(); }
void ParameterStore::begin_pass(bool training) { core_->begin_pass(training); }
void ParameterStore::enter(const std::vector<int>& units) { core_->enter(units); }
void ParameterStore::read(int unit) { core_->read(unit); }
void ParameterStore::leave(const std::vector<at::Tensor>& outputs, bool failed) {
  core_->leave(outputs, failed);
}
void ParameterStore::begin_step(bool due, int backwards) {
  core_->accumulated().begin_step(due, backwards);
}
void ParameterStore::end_backward() { core_->accumulated().end_backward(); }
void ParameterStore::finish_step(bool due) { core_->finish_step(due); }
bool ParameterStore::has_gradients() const { return core_->has_gradients(); }
bool ParameterStore::is_accumulating() const { return core_->is_accumulating(); }
std::vector<at::Tensor> ParameterStore::masters() const { return core_->masters(); }
std::vector<at::Tensor> ParameterStore::gradients() { return core_->gradients(); }
std::vector<OwnedPiece> ParameterStore::pieces() const { return core_->pieces(); }
std::string ParameterStore::not_finite() { return core_->not_finite(); }
void ParameterStore::zero_gradients() { core_->zero_gradients(); }
void ParameterStore::publish() { core_->publish(); }
void ParameterStore::accept_writes() { core_->accept_writes(); }
std::vector<at::Tensor> ParameterStore::whole_unit(int unit) { return core_->whole_unit(unit); }
std::vector<EvenShare> ParameterStore::even_shares(const std::vector<int>& parameters) const {
  std::vector<EvenShare> shares;
  for (const int parameter : parameters) shares.push_back(core_->share_of(parameter));
  return shares;
}
void ParameterStore::copy_even_shares(const std::vector<int>& parameters,
                                      const std::vector<at::Tensor>& targets) {
  core_->copy_even_shares(parameters, targets);
}
void ParameterStore::assign(int parameter, const at::Tensor& value) {
  core_->assign(parameter, value);
}
StoreUse ParameterStore::use() const { return core_->use(); }
ShardExchange::Traffic ParameterStore::traffic() const { return core_->traffic(); }
Prefetched ParameterStore::prefetched() const { return core_->prefetched(); }

}  // namespace smp::sharding
