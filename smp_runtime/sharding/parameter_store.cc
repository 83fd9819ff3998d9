// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/parameter_store.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/sharding/gradient_buckets.h"
#include "smp_runtime/sharding/live_units.h"

namespace smp::sharding {

using torch::autograd::variable_list;

class ParameterStore::Core {
 public:
  Core(StoreOptions options, std::vector<StoredParameter> parameters,
       std::vector<std::string> block_names)
      : options_(std::move(options)), parameters_(std::move(parameters)) {
    options_.exchange.unit_name = [this](int unit) {
      return units_.at(static_cast<std::size_t>(unit)).name;
    };
    exchange_ = std::make_unique<ShardExchange>(options_.exchange);
    const at::NoGradGuard no_grad;
    const UnitOptions unit_options{.degree = exchange_->degree(),
                                   .index = options_.index,
                                   .compute_type = options_.compute_type,
                                   .on_demand = options_.on_demand,
                                   .persistence_threshold = options_.persistence_threshold,
                                   .bucket = options_.bucket};
    ShardedModel model = make_units(unit_options, parameters_, block_names);
    layouts_ = std::move(model.layouts);
    unit_of_ = std::move(model.unit_of);
    units_ = std::move(model.units);
    arenas_ = std::move(model.arenas);
    live_.emplace(
        LiveUnits::Options{.most_live = options_.most_live, .prefetch = options_.prefetch},
        *exchange_, units_);
    buckets_.emplace(
        *exchange_, options_.bucket,
        [this](int unit) {
          return GradientBuckets::Size{.shard = at(unit).layout.shard,
                                       .master = at(unit).master.scalar_type()};
        },
        [this](int unit, const at::Tensor& sum) { add_sum(at(unit), sum); });
    // One after the other: what a parameter held is free before the next unit takes memory.
    for (std::size_t number = 0; number < units_.size(); ++number) {
      fill_unit(unit_options, parameters_, arenas_, units_[number]);
      live_->adopt(static_cast<int>(number));
    }
  }

  void watch(const std::shared_ptr<Core>& self) {
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
      auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[index].tensor);
      if (!accumulator) continue;  // frozen
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [weak = std::weak_ptr<Core>(self), index](const variable_list& outputs,
                                                    const variable_list& inputs) {
            if (const auto core = weak.lock()) core->note_gradient(index, inputs[0]);
            return outputs;
          }));
      accumulators_.push_back(std::move(accumulator));  // a parameter holds its own weakly
    }
    self_ = self;
  }

  [[nodiscard]] const std::vector<UnitLayout>& layouts() const { return layouts_; }
  [[nodiscard]] const std::vector<int>& unit_of() const { return unit_of_; }

  // --- Use ---

  void begin_pass(bool training) { live_->begin_pass(training); }

  void enter(const std::vector<int>& units) {
    frames_.push_back(units);
    for (const int number : units) live_->use(number);
  }

  void read(int number) {
    const ShardedUnit& unit = at(number);
    if (frames_.empty() || unit.always_live || unit.users > 0) return;
    if (unit.held && unit.state == UnitState::kLive) return;
    live_->use(number);
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
          for (const int number : units) core->live_->hold(number);
        });
      }
    }
    for (const int number : units) live_->end_use(number);
  }

  void end_backward() {
    const at::NoGradGuard no_grad;
    for (std::size_t number = 0; number < units_.size(); ++number) {
      ShardedUnit& unit = units_[number];
      if (options_.on_demand && unit.arrived > 0) complete(static_cast<int>(number));
      live_->let_go(static_cast<int>(number));
    }
    buckets_->flush();
  }

  void finish_step(bool due) {
    const at::NoGradGuard no_grad;
    end_backward();
    if (!due) return;
    if (!options_.on_demand) {
      for (std::size_t number = 0; number < units_.size(); ++number) {
        if (units_[number].trained) complete(static_cast<int>(number));
      }
      buckets_->flush();
    }
    clear_fresh();
    for (Arena& arena : arenas_) {
      exchange_->add_over_replicas(arena.gradient);
      if (options_.divisor > 1) arena.gradient.div_(options_.divisor);
    }
    averaged_ = true;
  }

  // --- Masters ---

  [[nodiscard]] std::vector<at::Tensor> masters() const {
    std::vector<at::Tensor> flat;
    for (const Arena& arena : arenas_) flat.push_back(arena.master);
    return flat;
  }

  std::vector<at::Tensor> gradients() {
    const at::NoGradGuard no_grad;
    clear_fresh();
    std::vector<at::Tensor> flat;
    for (const Arena& arena : arenas_) flat.push_back(arena.gradient);
    return flat;
  }

  [[nodiscard]] std::vector<OwnedPiece> pieces() const {
    std::vector<OwnedPiece> owned;
    for (const ShardedUnit& unit : units_) {
      if (!unit.trained) continue;
      for (const Piece& piece : pieces_of(unit.layout, options_.index)) {
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

  void zero_gradients() {
    SMP_CHECK(buckets_->idle(), "gradients were zeroed within a backward");
    for (ShardedUnit& unit : units_) {
      unit.fresh = true;
      unit.arrived = 0;
      for (StoredParameter& parameter : unit.parameters) parameter.tensor.mutable_grad().reset();
    }
    wide_.clear();
    averaged_ = false;
  }

  void publish() {
    const at::NoGradGuard no_grad;
    live_->drop_idle();
    for (std::size_t number = 0; number < units_.size(); ++number) {
      ShardedUnit& unit = units_[number];
      SMP_CHECK(unit.always_live || unit.state == UnitState::kSharded,
                "{} was in use when the optimizer stepped", unit.name);
      if (unit.always_live) live_->check_untouched(unit);
      if (!unit.own.is_same(unit.master)) unit.own.copy_(unit.master);
      if (!unit.always_live || exchange_->degree() == 1) continue;
      // A gather into memory that it also reads is nothing to rely on.
      unit.pending = exchange_->start_gather(static_cast<int>(number), unit.full, unit.own.clone());
    }
    for (ShardedUnit& unit : units_) {
      if (unit.pending) exchange_->wait(unit.pending);
      if (unit.always_live) LiveUnits::note_versions(unit);
    }
  }

  std::vector<at::Tensor> whole_unit(int number) {
    const at::NoGradGuard no_grad;
    ShardedUnit& unit = at(number);
    at::Tensor whole = unit.master;
    if (exchange_->degree() > 1) {
      whole = at::empty({unit.layout.padded}, unit.master.options());
      auto pending = exchange_->start_gather(number, whole, unit.master.contiguous());
      exchange_->wait(pending);
    }
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
    for (const Piece& piece : pieces_of(unit.layout, options_.index)) {
      if (piece.parameter != parameter) continue;
      unit.master.narrow(0, piece.offset, piece.elements)
          .copy_(flat.narrow(0, piece.start, piece.elements));
    }
  }

  [[nodiscard]] StoreUse use() const {
    StoreUse use{.peak_live = live_->peak_bytes()};
    for (const ShardedUnit& unit : units_) {
      const auto bytes = static_cast<std::int64_t>(unit.master.nbytes());
      use.shards += bytes;
      const bool apart = !unit.own.is_same(unit.master) && !unit.own.is_alias_of(unit.full);
      if (apart) use.shards += static_cast<std::int64_t>(unit.own.nbytes());
      const auto full = unit.layout.padded * static_cast<std::int64_t>(unit.full.element_size());
      if (unit.always_live) {
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

  [[nodiscard]] ShardExchange::Traffic traffic() const { return exchange_->traffic(); }

  [[nodiscard]] Prefetched prefetched() const { return live_->prefetched(); }

 private:
  ShardedUnit& at(int number) { return units_.at(static_cast<std::size_t>(number)); }

  // --- Gradients ---

  void note_gradient(std::size_t index, const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    const at::NoGradGuard no_grad;
    const int number = unit_of_[index];
    ShardedUnit& unit = at(number);
    refuse_sparse(parameters_[index]);
    if (options_.on_demand) {
      if (++unit.arrived == unit.parameters.size()) complete(number);
      return;
    }
    if (unit.full.scalar_type() == unit.master.scalar_type()) return;  // .grad adds up itself
    at::Tensor& grad = parameters_[index].tensor.mutable_grad();
    if (exchange_->degree() == 1) {
      add_own(unit, index, grad);
    } else {
      at::Tensor& wide = wide_[index];
      wide = wide.defined() ? wide.add_(grad) : grad.to(unit.master.scalar_type());
    }
    grad.reset();
  }

  static void refuse_sparse(const StoredParameter& parameter) {
    const at::Tensor& grad = parameter.tensor.grad();
    if (!grad.defined() || !grad.is_sparse()) return;
    throw UserCodeError(
        "the gradient of parameter {} is sparse; sharding takes none: make its layer without "
        "sparse=True",
        parameter.name);
  }

  /// In a group of one: straight into the flat gradient.
  void add_own(ShardedUnit& unit, std::size_t index, const at::Tensor& grad) {
    begin_adding();
    if (std::exchange(unit.fresh, false)) unit.gradient.zero_();
    for (const PlacedParameter& placed : unit.layout.parameters) {
      if (static_cast<std::size_t>(placed.parameter) != index) continue;
      unit.gradient.narrow(0, placed.offset, placed.elements).add_(grad.reshape({-1}));
    }
  }

  /// Takes the gradients of a unit to be reduced.
  void complete(int number) {
    ShardedUnit& unit = at(number);
    unit.arrived = 0;
    const at::ScalarType type =
        options_.on_demand ? unit.full.scalar_type() : unit.master.scalar_type();
    std::vector<at::Tensor> flat;
    bool any = false;
    for (std::size_t place = 0; place < unit.parameters.size(); ++place) {
      const PlacedParameter& placed = unit.layout.parameters[place];
      at::Tensor& grad = unit.parameters[place].tensor.mutable_grad();
      at::Tensor value;
      if (grad.defined()) value = grad.to(type).reshape({-1});
      const auto wide = wide_.find(static_cast<std::size_t>(placed.parameter));
      if (wide != wide_.end()) {
        const at::Tensor sum = wide->second.reshape({-1});
        value = value.defined() ? value.add(sum) : sum;
        wide_.erase(wide);
      }
      any = any || value.defined();
      if (!value.defined()) value = at::zeros({placed.elements}, unit.full.options().dtype(type));
      flat.push_back(std::move(value));
    }
    if (exchange_->degree() == 1) {
      for (std::size_t place = 0; any && place < unit.parameters.size(); ++place) {
        const auto index = static_cast<std::size_t>(unit.layout.parameters[place].parameter);
        add_own(unit, index, flat[place]);
      }
    } else {
      const PlacedParameter& last = unit.layout.parameters.back();
      const std::int64_t padding = unit.layout.padded - last.offset - last.elements;
      flat.push_back(at::zeros({padding}, unit.full.options().dtype(type)));
      buckets_->add(number, at::cat(flat));
    }
    for (StoredParameter& parameter : unit.parameters) parameter.tensor.mutable_grad().reset();
    live_->let_go(number);
  }

  /// What the ranks of the group have for this rank's shard of a unit.
  void add_sum(ShardedUnit& unit, const at::Tensor& sum) {
    begin_adding();
    if (std::exchange(unit.fresh, false)) {
      unit.gradient.copy_(sum);
    } else {
      unit.gradient.add_(sum);
    }
  }

  void clear_fresh() {
    for (ShardedUnit& unit : units_) {
      if (unit.trained && std::exchange(unit.fresh, false)) unit.gradient.zero_();
    }
  }

  /// Gradients of an earlier step that were averaged and not zeroed are to count once more.
  void begin_adding() {
    if (!std::exchange(averaged_, false)) return;
    for (Arena& arena : arenas_) {
      arena.gradient.mul_(options_.divisor).div_(exchange_->replicas());
    }
  }

  StoreOptions options_;
  std::vector<StoredParameter> parameters_;
  std::vector<UnitLayout> layouts_;
  std::vector<int> unit_of_;
  std::vector<ShardedUnit> units_;
  std::vector<Arena> arenas_;
  std::unique_ptr<ShardExchange> exchange_;
  std::optional<LiveUnits> live_;  // both refer to what stands above
  std::optional<GradientBuckets> buckets_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::weak_ptr<Core> self_;

  std::vector<std::vector<int>> frames_;    ///< units of the calls under way, outermost first
  std::map<std::size_t, at::Tensor> wide_;  ///< sums of 16-bit gradients, until the step's end
  bool averaged_ = false;  ///< the shards of gradients hold means over all replicas
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
void ParameterStore::end_backward() { core_->end_backward(); }
void ParameterStore::finish_step(bool due) { core_->finish_step(due); }
std::vector<at::Tensor> ParameterStore::masters() const { return core_->masters(); }
std::vector<at::Tensor> ParameterStore::gradients() { return core_->gradients(); }
std::vector<OwnedPiece> ParameterStore::pieces() const { return core_->pieces(); }
std::string ParameterStore::not_finite() { return core_->not_finite(); }
void ParameterStore::zero_gradients() { core_->zero_gradients(); }
void ParameterStore::publish() { core_->publish(); }
std::vector<at::Tensor> ParameterStore::whole_unit(int unit) { return core_->whole_unit(unit); }
void ParameterStore::assign(int parameter, const at::Tensor& value) {
  core_->assign(parameter, value);
}
StoreUse ParameterStore::use() const { return core_->use(); }
ShardExchange::Traffic ParameterStore::traffic() const { return core_->traffic(); }
Prefetched ParameterStore::prefetched() const { return core_->prefetched(); }

}  // namespace smp::sharding
