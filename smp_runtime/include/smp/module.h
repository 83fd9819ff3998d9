// SPDX-License-Identifier: Apache-2.0
// A torch::nn::Module that declares its units and calls them in any form. In a header of its own,
// which compiles in the program: the library knows no module of torch::nn.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "smp/model.h"
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace smp {

/// A module as a function of the tensors that its forward takes.
template <typename Module>
struct ModuleCall {
  torch::nn::ModuleHolder<Module> module;  ///< shared with its other holders

  /// Returns what the module's forward does.
  template <typename... Inputs>
  auto operator()(const Inputs&... inputs) -> decltype(std::declval<Module&>().forward(inputs...)) {
    return module->forward(inputs...);
  }
};

/// A unit as its module calls it. Copies are the same unit.
class UnitCall {
 public:
  /// The unit's result. Before its model is distributed it is computed here, then where the unit
  /// lives, with the errors of DistributedModel::call(); UserCodeError when that model has ended.
  template <typename... Inputs>
  at::Tensor operator()(const at::Tensor& first, const Inputs&... others) const {
    return all({first, others...}).at(0);
  }
  /// All its results, likewise.
  [[nodiscard]] Tensors all(const Tensors& inputs) const {
    if (!shared_->joined) return shared_->unit.forward(inputs);
    const auto model = shared_->model.lock();
    if (!model) {
      throw UserCodeError("unit \"" + shared_->unit.name +
                          "\" was called after its DistributedModel had ended; keep that as long");
    }
    return DistributedModel::call_of(*model, shared_->unit.name, inputs);
  }

 private:
  friend class UnitModule;
  struct Shared {
    Unit unit;
    bool joined = false;  ///< a model, which is:
    std::weak_ptr<DistributedModel::Core> model;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

/// Base of a model that is to be distributed:
///
///     struct NetImpl : smp::UnitModule {
///       torch::Tensor forward(const torch::Tensor& x) { return head(body(x) + x); }
///       smp::UnitCall body = unit("body", torch::nn::Linear(64, 64));
///       smp::UnitCall head = unit("head", torch::nn::Linear(64, 10));
///     };
///     TORCH_MODULE(Net);
///     smp::DistributedModel model = smp::distribute(session, Net());
class UnitModule : public torch::nn::Module {
 public:
  /// All units, in the order of their declaration.
  [[nodiscard]] std::vector<Unit> units() const {
    std::vector<Unit> all;
    for (const UnitCall& call : calls_) all.push_back(call.shared_->unit);
    return all;
  }
  /// From now on units are called where `model` has them.
  void join(const DistributedModel& model) {
    for (const UnitCall& call : calls_) {
      call.shared_->joined = true;
      call.shared_->model = model.core();
    }
  }

 protected:
  /// Registers a module under `name`, once, and makes a unit of it.
  template <typename Module>
  UnitCall unit(std::string name, torch::nn::ModuleHolder<Module> module, bool recompute = false) {
    register_module(name, module);
    UnitCall call;
    call.shared_->unit = {.name = std::move(name),
                          .forward = ModuleCall<Module>{module},
                          .parameters = named_tensors(module->named_parameters()),
                          .buffers = named_tensors(module->named_buffers()),
                          .recompute = recompute};
    calls_.push_back(call);
    return call;
  }

 private:
  std::vector<UnitCall> calls_;
};

/// The module's units over the ranks; its own forward is the model's. Keeps the module.
template <typename Module>
[[nodiscard]] DistributedModel distribute(Session& session, torch::nn::ModuleHolder<Module> module,
                                          DistributedModel::Options options = {}) {
  Graph graph{.units = module->units(), .forward = ModuleCall<Module>{module}};
  DistributedModel model(session, std::move(graph), std::move(options));
  module->join(model);
  return model;
}

}  // namespace smp
