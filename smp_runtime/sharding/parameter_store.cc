// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/parameter_store.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/sharding/gather_order.h"
#include "smp_runtime/sharding/gathered_memory.h"

namespace smp::sharding {
namespace {

using torch::autograd::variable_list;

constexpr std::int64_t kAlignmentBytes = 128;       // shards that start aligned are gathered faster
constexpr std::int64_t kFetchedAhead = 50'000'000;  // elements fetched ahead at once
constexpr std::size_t kLookahead = 16;              // needs
constexpr std::size_t kBucketsInflight = 2;

enum class State { kSharded, kInflight, kLive };

struct Unit {
  UnitLayout layout;
  std::string name;
  std::vector<StoredParameter> parameters;
  bool trained = false;
  bool always_live = false;
  at::Tensor full;      ///< [padded] in the computing type; has memory only while not sharded
  at::Tensor own;       ///< [shard] in the computing type: what this rank gives to a gather
  at::Tensor master;    ///< [shard] in the master's type; `own` itself where types are equal
  at::Tensor gradient;  ///< [shard] in the master's type; of trained units
  std::size_t arena = 0;
  std::int64_t arena_offset = 0;

  State state = State::kSharded;
  ShardExchange::Pending pending;
  std::vector<std::uint32_t> versions;  ///< of the parameters when they came alive
  int users = 0;                        ///< calls under way that need it
  bool held = false;                    ///< the backward needs it
  std::size_t arrived = 0;              ///< gradients of the backward that is running
  bool fresh = true;                    ///< nothing was added to `gradient` since it was zeroed
};

struct Arena {
  at::Tensor master;
  at::Tensor gradient;
};

struct Contribution {
  int unit = 0;
  at::Tensor flat;  ///< [padded]
};

struct PendingBucket {
  std::vector<int> units;
  ShardExchange::Pending pending;
};

}  // namespace

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
    plan(block_names);
    make_arenas();
    for (Unit& unit : units_) fill(unit);
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

  void begin_pass(bool training) {
    order_ = &orders_[training ? 0 : 1];
    order_->begin();
    prefetched_ = {};
  }

  void enter(const std::vector<int>& units) {
    frames_.push_back(units);
    for (const int number : units) use_unit(number);
  }

  void read(int number) {
    Unit& unit = at(number);
    if (frames_.empty() || unit.always_live || unit.users > 0) return;
    if (unit.held && unit.state == State::kLive) return;
    use_unit(number);
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
          if (const auto core = weak.lock()) core->hold(units);
        });
      }
    }
    for (const int number : units) {
      --at(number).users;
      release(number);
    }
  }

  void end_backward() {
    const at::NoGradGuard no_grad;
    for (std::size_t number = 0; number < units_.size(); ++number) {
      Unit& unit = units_[number];
      if (options_.on_demand && unit.arrived > 0) complete(static_cast<int>(number));
      unit.held = false;
      release(static_cast<int>(number));
    }
    flush();
  }

  void finish_step(bool due) {
    const at::NoGradGuard no_grad;
    end_backward();
    if (!due) return;
    if (!options_.on_demand) {
      for (std::size_t number = 0; number < units_.size(); ++number) {
        if (units_[number].trained) complete(static_cast<int>(number));
      }
      flush();
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
    for (const Unit& unit : units_) {
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
    SMP_CHECK(bucket_.empty() && inflight_.empty(), "gradients were zeroed within a backward");
    for (Unit& unit : units_) {
      unit.fresh = true;
      unit.arrived = 0;
      for (StoredParameter& parameter : unit.parameters) parameter.tensor.mutable_grad().reset();
    }
    wide_.clear();
    averaged_ = false;
  }

  void publish() {
    const at::NoGradGuard no_grad;
    drop_idle();
    for (std::size_t number = 0; number < units_.size(); ++number) {
      Unit& unit = units_[number];
      SMP_CHECK(unit.always_live || unit.state == State::kSharded,
                "{} was in use when the optimizer stepped", unit.name);
      if (unit.always_live) check_untouched(unit, unit.state);
      if (!unit.own.is_same(unit.master)) unit.own.copy_(unit.master);
      if (!unit.always_live || exchange_->degree() == 1) continue;
      // A gather into memory that it also reads is nothing to rely on.
      unit.pending = exchange_->start_gather(static_cast<int>(number), unit.full, unit.own.clone());
    }
    for (Unit& unit : units_) {
      if (unit.pending) exchange_->wait(unit.pending);
      if (unit.always_live) note_versions(unit);
    }
  }

  std::vector<at::Tensor> whole_unit(int number) {
    const at::NoGradGuard no_grad;
    Unit& unit = at(number);
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
    Unit& unit = at(unit_of_.at(static_cast<std::size_t>(parameter)));
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
    StoreUse use{.peak_live = peak_live_bytes_};
    for (const Unit& unit : units_) {
      const auto bytes = static_cast<std::int64_t>(unit.master.nbytes());
      use.shards += bytes;
      const bool apart = !unit.own.is_same(unit.master) && !unit.own.is_alias_of(unit.full);
      if (apart) use.shards += static_cast<std::int64_t>(unit.own.nbytes());
      const auto full = unit.layout.padded * static_cast<std::int64_t>(unit.full.element_size());
      if (unit.always_live) {
        use.persistent += full;
      } else if (unit.state != State::kSharded) {
        use.live += full;
      }
    }
    for (const Arena& arena : arenas_) {
      use.gradients += static_cast<std::int64_t>(arena.gradient.nbytes());
    }
    return use;
  }

  [[nodiscard]] ShardExchange::Traffic traffic() const { return exchange_->traffic(); }

  [[nodiscard]] Prefetched prefetched() const {
    Prefetched result = prefetched_;
    const GatherOrder::Score score = order_->score();
    result.expected = static_cast<std::int64_t>(score.expected);
    result.needs = static_cast<std::int64_t>(score.needs);
    return result;
  }

 private:
  Unit& at(int number) { return units_.at(static_cast<std::size_t>(number)); }

  // --- Construction ---

  void plan(const std::vector<std::string>& block_names) {
    std::map<std::pair<at::ScalarType, bool>, int> kinds;
    std::vector<ParameterSize> sizes;
    for (StoredParameter& parameter : parameters_) {
      SMP_CHECK(parameter.tensor.is_floating_point(), "{} is of type {}", parameter.name,
                toString(parameter.tensor.scalar_type()));
      const std::pair kind{parameter.tensor.scalar_type(), parameter.tensor.requires_grad()};
      const int number = kinds.try_emplace(kind, static_cast<int>(kinds.size())).first->second;
      sizes.push_back(
          {.elements = parameter.tensor.numel(), .block = parameter.block, .kind = number});
    }
    const int degree = exchange_->degree();
    const bool whole = !options_.on_demand || degree == 1;
    layouts_ = plan_units(
        sizes, {.degree = degree,
                // Whole parameters are gathered once a step: there balance counts for more.
                .alignment = whole ? 1 : kAlignmentBytes / 2,
                .persistence_threshold = whole ? std::numeric_limits<std::int64_t>::max()
                                               : options_.persistence_threshold,
                .persistent_unit = std::max<std::int64_t>(1, options_.bucket)});
    unit_of_.resize(parameters_.size());
    for (std::size_t number = 0; number < layouts_.size(); ++number) {
      Unit unit;
      unit.layout = layouts_[number];
      unit.always_live = unit.layout.persistent;
      for (const PlacedParameter& placed : unit.layout.parameters) {
        const auto index = static_cast<std::size_t>(placed.parameter);
        unit.parameters.push_back(parameters_[index]);
        unit_of_[index] = static_cast<int>(number);
      }
      unit.trained = unit.parameters.front().tensor.requires_grad();
      unit.name = unit.always_live
                      ? fmt::format("the small parameters from {} on", unit.parameters[0].name)
                      : fmt::format("module {}",
                                    block_names.at(static_cast<std::size_t>(unit.layout.block)));
      units_.push_back(std::move(unit));
    }
  }

  [[nodiscard]] at::ScalarType computing_type(const Unit& unit) const {
    return options_.compute_type == at::ScalarType::Undefined
               ? unit.parameters.front().tensor.scalar_type()
               : options_.compute_type;
  }

  [[nodiscard]] at::ScalarType master_type(const Unit& unit) const {
    if (!unit.trained) return computing_type(unit);
    return options_.compute_type == at::ScalarType::Undefined
               ? unit.parameters.front().tensor.scalar_type()
               : at::kFloat;
  }

  void make_arenas() {
    std::map<at::ScalarType, std::pair<std::size_t, std::int64_t>> sizes;  // number, elements
    for (Unit& unit : units_) {
      if (!unit.trained) continue;
      auto& [number, elements] =
          sizes.try_emplace(master_type(unit), sizes.size(), std::int64_t{0}).first->second;
      unit.arena = number;
      unit.arena_offset = elements;
      elements += unit.layout.shard;
    }
    arenas_.resize(sizes.size());
    const at::TensorOptions device =
        units_.empty() ? at::TensorOptions() : units_[0].parameters[0].tensor.options();
    for (const auto& [type, size] : sizes) {
      arenas_[size.first].master = at::zeros({size.second}, device.dtype(type));
      arenas_[size.first].gradient = at::zeros({size.second}, device.dtype(type));
    }
  }

  void fill(Unit& unit) {
    const at::ScalarType type = computing_type(unit);
    const at::TensorOptions device = unit.parameters[0].tensor.options();
    unit.full = at::zeros({unit.layout.padded}, device.dtype(type));
    if (unit.trained) {
      Arena& arena = arenas_[unit.arena];
      unit.master = arena.master.narrow(0, unit.arena_offset, unit.layout.shard);
      unit.gradient = arena.gradient.narrow(0, unit.arena_offset, unit.layout.shard);
    } else {
      unit.master = at::zeros({unit.layout.shard}, device.dtype(type));
    }
    for (const Piece& piece : pieces_of(unit.layout, options_.index)) {
      const at::Tensor& value = parameters_[static_cast<std::size_t>(piece.parameter)].tensor;
      unit.master.narrow(0, piece.offset, piece.elements)
          .copy_(value.detach().reshape({-1}).narrow(0, piece.start, piece.elements));
    }
    for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
      const PlacedParameter& placed = unit.layout.parameters[index];
      unit.full.narrow(0, placed.offset, placed.elements)
          .copy_(unit.parameters[index].tensor.detach().reshape({-1}));
    }
    const at::Tensor mine =
        unit.full.narrow(0, options_.index * unit.layout.shard, unit.layout.shard);
    if (unit.always_live) {
      unit.own = mine;
      unit.state = State::kLive;
      show(unit);
      return;
    }
    unit.own = type == unit.master.scalar_type() ? unit.master : mine.clone();
    hide(unit);
    memory_.take_away(unit.full);
  }

  // --- Life of a unit ---

  void show(Unit& unit) {
    for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
      const PlacedParameter& placed = unit.layout.parameters[index];
      at::Tensor& parameter = unit.parameters[index].tensor;
      parameter.set_data(
          unit.full.narrow(0, placed.offset, placed.elements).view(parameter.sizes()));
    }
    note_versions(unit);
  }

  void hide(Unit& unit) {
    const at::ScalarType type = unit.full.scalar_type();
    at::Tensor& one = placeholders_[type];
    if (!one.defined()) {
      one = at::full({}, std::numeric_limits<double>::quiet_NaN(), unit.full.options().dtype(type));
    }
    for (StoredParameter& parameter : unit.parameters) {
      parameter.tensor.set_data(one.expand(parameter.tensor.sizes()));
    }
    note_versions(unit);
  }

  static void note_versions(Unit& unit) {
    unit.versions.clear();
    for (const StoredParameter& parameter : unit.parameters) {
      unit.versions.push_back(static_cast<std::uint32_t>(parameter.tensor._version()));
    }
  }

  /// Throws if a script gave a parameter other memory, or wrote to it.
  void check_untouched(const Unit& unit, State state) {
    for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
      const at::Tensor& parameter = unit.parameters[index].tensor;
      const at::Tensor& owner =
          state == State::kLive ? unit.full : placeholders_[unit.full.scalar_type()];
      const bool same_memory = parameter.is_alias_of(owner);
      const bool same_value =
          static_cast<std::uint32_t>(parameter._version()) == unit.versions[index];
      if (same_memory && same_value) continue;
      throw UserCodeError(
          "parameter {} was {} outside of the optimizer; its values are sharded over {} ranks and "
          "kept by the library, so that the change would be lost: use model.load_state_dict()",
          unit.parameters[index].name, same_memory ? "changed in place" : "given other memory",
          exchange_->degree());
    }
  }

  void use_unit(int number) {
    Unit& unit = at(number);
    need(number);
    ++unit.users;
  }

  /// Makes a unit live.
  void need(int number) {
    Unit& unit = at(number);
    if (unit.always_live || unit.users > 0 || unit.held) return;
    const at::NoGradGuard no_grad;
    const bool followed = order_->expected(0).has_value();
    if (!order_->note(number) && followed) drop_idle();
    if (unit.state == State::kLive) {
      prefetch();
      return;
    }
    ++prefetched_.gathers;
    if (unit.state == State::kSharded) {
      if (live_elements_ + unit.layout.padded > options_.most_live) drop_idle();
      start(number);
    } else {
      ++prefetched_.ahead;
    }
    prefetch();
    arrive(number);
  }

  void start(int number) {
    Unit& unit = at(number);
    check_untouched(unit, State::kSharded);
    memory_.give(unit.full, unit.layout.padded);
    live_elements_ += unit.layout.padded;
    inflight_elements_ += unit.layout.padded;
    live_bytes_ += static_cast<std::int64_t>(unit.full.nbytes());
    peak_live_bytes_ = std::max(peak_live_bytes_, live_bytes_);
    unit.state = State::kInflight;
    unit.pending = exchange_->start_gather(number, unit.full, unit.own);
  }

  void arrive(int number) {
    Unit& unit = at(number);
    if (unit.state == State::kInflight) {
      inflight_elements_ -= unit.layout.padded;
      unit.state = State::kLive;
      exchange_->wait(unit.pending);
    }
    show(unit);
  }

  void prefetch() {
    if (!options_.prefetch) return;
    for (std::size_t ahead = 0; ahead < kLookahead; ++ahead) {
      const std::optional<int> next = order_->expected(ahead);
      if (!next) return;
      Unit& unit = at(*next);
      if (unit.state != State::kSharded) continue;
      const std::int64_t size = unit.layout.padded;
      if (live_elements_ + size > options_.most_live) return;
      if (inflight_elements_ > 0 && inflight_elements_ + size > kFetchedAhead) return;
      start(*next);
    }
  }

  void release(int number) {
    Unit& unit = at(number);
    if (unit.always_live || unit.state != State::kLive || unit.users > 0 || unit.held) return;
    if (order_->expected(0) == number && live_elements_ <= options_.most_live) return;
    discard(number);
  }

  void discard(int number) {
    Unit& unit = at(number);
    const at::NoGradGuard no_grad;
    if (unit.state == State::kInflight) arrive(number);
    check_untouched(unit, State::kLive);
    hide(unit);
    live_bytes_ -= static_cast<std::int64_t>(unit.full.nbytes());
    live_elements_ -= unit.layout.padded;
    memory_.take_away(unit.full);
    unit.state = State::kSharded;
  }

  /// Gives up what was fetched or kept for a need that is not coming.
  void drop_idle() {
    for (std::size_t number = 0; number < units_.size(); ++number) {
      const Unit& unit = units_[number];
      if (unit.always_live || unit.state == State::kSharded || unit.users > 0 || unit.held)
        continue;
      discard(static_cast<int>(number));
    }
  }

  // --- Gradients ---

  void hold(const std::vector<int>& units) {
    for (const int number : units) {
      need(number);
      at(number).held = !at(number).always_live;
    }
  }

  void note_gradient(std::size_t index, const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    const at::NoGradGuard no_grad;
    const int number = unit_of_[index];
    Unit& unit = at(number);
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
  void add_own(Unit& unit, std::size_t index, const at::Tensor& grad) {
    begin_adding();
    if (std::exchange(unit.fresh, false)) unit.gradient.zero_();
    for (const PlacedParameter& placed : unit.layout.parameters) {
      if (static_cast<std::size_t>(placed.parameter) != index) continue;
      unit.gradient.narrow(0, placed.offset, placed.elements).add_(grad.reshape({-1}));
    }
  }

  /// Takes the gradients of a unit to be reduced.
  void complete(int number) {
    Unit& unit = at(number);
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
      put_in_bucket({.unit = number, .flat = at::cat(flat)});
    }
    for (StoredParameter& parameter : unit.parameters) parameter.tensor.mutable_grad().reset();
    unit.held = false;
    release(number);
  }

  void put_in_bucket(Contribution contribution) {
    if (!bucket_.empty() && bucket_.back().flat.scalar_type() != contribution.flat.scalar_type()) {
      launch();
    }
    bucket_elements_ += contribution.flat.numel();
    bucket_.push_back(std::move(contribution));
    if (bucket_elements_ >= options_.bucket) launch();
  }

  void launch() {
    if (bucket_.empty()) return;
    const std::int64_t degree = exchange_->degree();
    PendingBucket pending;
    std::vector<at::Tensor> rows;  // each [degree, shard]: row i is for rank i
    for (const Contribution& contribution : bucket_) {
      pending.units.push_back(contribution.unit);
      rows.push_back(contribution.flat.view({degree, -1}));
    }
    const at::Tensor sent = rows.size() == 1 ? rows[0] : at::cat(rows, 1);
    pending.pending = exchange_->start_reduce(pending.units[0], sent);
    bucket_.clear();
    bucket_elements_ = 0;
    inflight_.push_back(std::move(pending));
    while (inflight_.size() > kBucketsInflight) finish_oldest();
  }

  void finish_oldest() {
    PendingBucket bucket = std::move(inflight_.front());
    inflight_.pop_front();
    const at::Tensor arrived = exchange_->wait(bucket.pending);
    const at::ScalarType type = at(bucket.units[0]).master.scalar_type();
    const at::Tensor sum = at::sum(arrived, {0}, /*keepdim=*/false, type);
    begin_adding();
    std::int64_t offset = 0;
    for (const int number : bucket.units) {
      Unit& unit = at(number);
      const at::Tensor part = sum.narrow(0, offset, unit.layout.shard);
      offset += unit.layout.shard;
      if (std::exchange(unit.fresh, false)) {
        unit.gradient.copy_(part);
      } else {
        unit.gradient.add_(part);
      }
    }
  }

  void flush() {
    launch();
    while (!inflight_.empty()) finish_oldest();
  }

  void clear_fresh() {
    for (Unit& unit : units_) {
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
  std::vector<Unit> units_;
  std::vector<Arena> arenas_;
  std::unique_ptr<ShardExchange> exchange_;
  GatheredMemory memory_;
  std::map<at::ScalarType, at::Tensor> placeholders_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::weak_ptr<Core> self_;

  std::array<GatherOrder, 2> orders_;
  GatherOrder* order_ = &orders_[0];
  Prefetched prefetched_;
  std::vector<std::vector<int>> frames_;  ///< units of the calls under way, outermost first
  std::int64_t live_elements_ = 0;
  std::int64_t inflight_elements_ = 0;
  std::int64_t live_bytes_ = 0;
  std::int64_t peak_live_bytes_ = 0;

  std::map<std::size_t, at::Tensor> wide_;  ///< sums of 16-bit gradients, until the step's end
  std::vector<Contribution> bucket_;
  std::int64_t bucket_elements_ = 0;
  std::deque<PendingBucket> inflight_;
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
ParameterStore::Prefetched ParameterStore::prefetched() const { return core_->prefetched(); }

}  // namespace smp::sharding
