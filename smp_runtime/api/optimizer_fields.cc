// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/optimizer_fields.h"

#include <cstdint>
#include <memory>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "smp_runtime/core/error.h"

namespace smp::api {
namespace {

namespace optim = torch::optim;

/// Members of a struct by their names in PyTorch.
template <typename Struct, typename Value>
using Named = std::vector<std::pair<const char*, Value& (*)(Struct&)>>;

template <typename State, typename Options>
class Fields : public OptimizerFields {
 public:
  using Betas = std::tuple<double, double>;

  const char* name = "";
  Named<State, at::Tensor> tensors;
  std::int64_t& (*step)(State&) = nullptr;
  Named<Options, double> numbers;
  Named<Options, bool> flags;
  Betas& (*betas)(Options&) = nullptr;

  [[nodiscard]] std::string kind() const override { return name; }

  [[nodiscard]] ParameterState state_of(optim::Optimizer& optimizer,
                                        const at::Tensor& parameter) const override {
    ParameterState state;
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) return state;
    auto& held = static_cast<State&>(*found->second);
    for (const auto& [key, at] : tensors) {
      if (at(held).defined()) state.tensors.emplace(key, at(held));
    }
    if (step != nullptr) state.step = static_cast<double>(step(held));
    return state;
  }

  void put_state(optim::Optimizer& optimizer, const at::Tensor& parameter,
                 const ParameterState& state) const override {
    auto held = std::make_unique<State>();
    for (const auto& [key, at] : tensors) {
      if (const auto found = state.tensors.find(key); found != state.tensors.end()) {
        at(*held) = found->second;
      }
    }
    if (step != nullptr && state.step) step(*held) = static_cast<std::int64_t>(*state.step);
    optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(held);
  }

  [[nodiscard]] GroupSettings settings_of(optim::OptimizerParamGroup& group) const override {
    auto& options = static_cast<Options&>(group.options());
    GroupSettings settings;
    for (const auto& [key, at] : numbers) settings.numbers.emplace(key, at(options));
    for (const auto& [key, at] : flags) settings.flags.emplace(key, at(options));
    if (betas != nullptr) {
      settings.betas = {std::get<0>(betas(options)), std::get<1>(betas(options))};
    }
    return settings;
  }

  void put_settings(optim::OptimizerParamGroup& group,
                    const GroupSettings& settings) const override {
    auto& options = static_cast<Options&>(group.options());
    for (const auto& [key, at] : numbers) {
      if (const auto found = settings.numbers.find(key); found != settings.numbers.end()) {
        at(options) = found->second;
      }
    }
    for (const auto& [key, at] : flags) {
      if (const auto found = settings.flags.find(key); found != settings.flags.end()) {
        at(options) = found->second;
      }
    }
    if (betas != nullptr && settings.betas) {
      betas(options) = Betas(settings.betas->first, settings.betas->second);
    }
  }
};

#define SMP_FIELD(type, member)                             \
  {                                                         \
#member, [](type & of) -> auto& { return of.member(); } \
  }

Fields<optim::SGDParamState, optim::SGDOptions> of_sgd() {
  using State = optim::SGDParamState;
  using Options = optim::SGDOptions;
  Fields<State, Options> fields;
  fields.name = "SGD";
  fields.tensors = {SMP_FIELD(State, momentum_buffer)};
  fields.numbers = {SMP_FIELD(Options, lr), SMP_FIELD(Options, momentum),
                    SMP_FIELD(Options, dampening), SMP_FIELD(Options, weight_decay)};
  fields.flags = {SMP_FIELD(Options, nesterov)};
  return fields;
}

/// Adam's and AdamW's are alike.
template <typename State, typename Options>
Fields<State, Options> of_adam(const char* name) {
  Fields<State, Options> fields;
  fields.name = name;
  fields.tensors = {SMP_FIELD(State, exp_avg), SMP_FIELD(State, exp_avg_sq),
                    SMP_FIELD(State, max_exp_avg_sq)};
  fields.step = [](State& of) -> std::int64_t& { return of.step(); };
  fields.numbers = {SMP_FIELD(Options, lr), SMP_FIELD(Options, eps),
                    SMP_FIELD(Options, weight_decay)};
  fields.flags = {SMP_FIELD(Options, amsgrad)};
  fields.betas = [](Options& of) -> std::tuple<double, double>& { return of.betas(); };
  return fields;
}

Fields<optim::RMSpropParamState, optim::RMSpropOptions> of_rmsprop() {
  using State = optim::RMSpropParamState;
  using Options = optim::RMSpropOptions;
  Fields<State, Options> fields;
  fields.name = "RMSprop";
  fields.tensors = {SMP_FIELD(State, square_avg), SMP_FIELD(State, momentum_buffer),
                    SMP_FIELD(State, grad_avg)};
  fields.step = [](State& of) -> std::int64_t& { return of.step(); };
  fields.numbers = {SMP_FIELD(Options, lr), SMP_FIELD(Options, alpha), SMP_FIELD(Options, eps),
                    SMP_FIELD(Options, weight_decay), SMP_FIELD(Options, momentum)};
  fields.flags = {SMP_FIELD(Options, centered)};
  return fields;
}

Fields<optim::AdagradParamState, optim::AdagradOptions> of_adagrad() {
  using State = optim::AdagradParamState;
  using Options = optim::AdagradOptions;
  Fields<State, Options> fields;
  fields.name = "Adagrad";
  fields.tensors = {SMP_FIELD(State, sum)};
  fields.step = [](State& of) -> std::int64_t& { return of.step(); };
  fields.numbers = {SMP_FIELD(Options, lr), SMP_FIELD(Options, lr_decay),
                    SMP_FIELD(Options, weight_decay), SMP_FIELD(Options, initial_accumulator_value),
                    SMP_FIELD(Options, eps)};
  return fields;
}

#undef SMP_FIELD

}  // namespace

const OptimizerFields* find_fields_of(const optim::Optimizer& optimizer) {
  static const auto sgd = of_sgd();
  static const auto adam = of_adam<optim::AdamParamState, optim::AdamOptions>("Adam");
  static const auto adamw = of_adam<optim::AdamWParamState, optim::AdamWOptions>("AdamW");
  static const auto rmsprop = of_rmsprop();
  static const auto adagrad = of_adagrad();
  if (typeid(optimizer) == typeid(optim::SGD)) return &sgd;
  if (typeid(optimizer) == typeid(optim::Adam)) return &adam;
  if (typeid(optimizer) == typeid(optim::AdamW)) return &adamw;
  if (typeid(optimizer) == typeid(optim::RMSprop)) return &rmsprop;
  if (typeid(optimizer) == typeid(optim::Adagrad)) return &adagrad;
  return nullptr;
}

const OptimizerFields& fields_of(const optim::Optimizer& optimizer) {
  if (const OptimizerFields* const fields = find_fields_of(optimizer)) return *fields;
  throw ConfigError(
      "checkpoints hold the state of SGD, Adam, AdamW, RMSprop and Adagrad, and this optimizer is "
      "another; save without it, or use one of them");
}

}  // namespace smp::api
