// SPDX-License-Identifier: Apache-2.0
// State of a parameter and settings of a group in an optimizer of torch::optim, by their names in
// PyTorch's state dicts.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace smp::api {

/// State of one parameter.
struct ParameterState {
  std::map<std::string, at::Tensor> tensors;  ///< of the parameter's shape
  std::optional<double> step;

  [[nodiscard]] bool empty() const { return tensors.empty() && !step; }
};

/// Settings of one group, such as lr; pairs of Adam's are "betas" with two numbers.
struct GroupSettings {
  std::map<std::string, double> numbers;
  std::map<std::string, bool> flags;
  std::optional<std::pair<double, double>> betas;
};

/// Access to the state and settings of SGD, Adam, AdamW, RMSprop and Adagrad. Stateless.
class OptimizerFields {
 public:
  virtual ~OptimizerFields() = default;

  /// PyTorch's name of the class.
  [[nodiscard]] virtual std::string kind() const = 0;
  [[nodiscard]] virtual ParameterState state_of(torch::optim::Optimizer& optimizer,
                                                const at::Tensor& parameter) const = 0;
  /// Replaces what is there. Unknown names are left out.
  virtual void put_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                         const ParameterState& state) const = 0;
  [[nodiscard]] virtual GroupSettings settings_of(
      torch::optim::OptimizerParamGroup& group) const = 0;
  /// Sets those that are in `settings`; others stay.
  virtual void put_settings(torch::optim::OptimizerParamGroup& group,
                            const GroupSettings& settings) const = 0;
};

/// Null for an optimizer of another class.
const OptimizerFields* find_fields_of(const torch::optim::Optimizer& optimizer);
/// Throws ConfigError for one.
const OptimizerFields& fields_of(const torch::optim::Optimizer& optimizer);

}  // namespace smp::api
