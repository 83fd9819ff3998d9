// SPDX-License-Identifier: Apache-2.0
// The parts of a model that are placed: named functions with their parameters.
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "smp/error.h"
#include <ATen/core/Tensor.h>

namespace smp {

/// Inputs and results of units.
using Tensors = std::vector<at::Tensor>;

/// A unit's computation, from tensors to tensors. Made from a function of one, two or three tensors
/// that returns one, or from a function of a list that returns a list.
class UnitFunction {
 public:
  /// Empty, as Graph::forward may be; must not be called.
  UnitFunction() = default;
  /// Keeps a copy of the function.
  template <typename Function>
  requires(!std::same_as<std::remove_cvref_t<Function>, UnitFunction>)
      UnitFunction(Function function)
      : run_(listed(std::move(function))) {}

  /// Throws UserCodeError for a number of tensors that it does not take.
  Tensors operator()(const Tensors& inputs) const { return run_(inputs); }
  /// True if there is a function.
  explicit operator bool() const { return static_cast<bool>(run_); }

 private:
  /// By the number of inputs of a call: the function may have default arguments.
  template <typename Function>
  static std::function<Tensors(const Tensors&)> listed(Function function) {
    using T = const at::Tensor&;
    constexpr bool kOne = std::is_invocable_r_v<at::Tensor, Function&, T>;
    constexpr bool kTwo = std::is_invocable_r_v<at::Tensor, Function&, T, T>;
    constexpr bool kThree = std::is_invocable_r_v<at::Tensor, Function&, T, T, T>;
    if constexpr (kOne || kTwo || kThree) {
      return [function](const Tensors& in) mutable -> Tensors {
        if constexpr (kOne) {
          if (in.size() == 1) return {function(in[0])};
        }
        if constexpr (kTwo) {
          if (in.size() == 2) return {function(in[0], in[1])};
        }
        if constexpr (kThree) {
          if (in.size() == 3) return {function(in[0], in[1], in[2])};
        }
        throw UserCodeError("a unit was called with " + std::to_string(in.size()) +
                            " tensors, which its function does not take");
      };
    } else {
      static_assert(std::is_invocable_r_v<Tensors, Function&, const Tensors&>,
                    "a unit's function takes tensors and returns one, or lists of them");
      return function;
    }
  }

  std::function<Tensors(const Tensors&)> run_;
};

/// A parameter or a buffer of a unit.
struct NamedTensor {
  std::string name;   ///< within its unit, as "weight" or "norm.bias"
  at::Tensor tensor;  ///< the module's own, not a copy
};

/// The named_parameters() or named_buffers() of a torch::nn::Module as a list.
template <typename Items>
[[nodiscard]] std::vector<NamedTensor> named_tensors(const Items& items) {
  std::vector<NamedTensor> all;
  for (const auto& item : items) all.push_back({item.key(), item.value()});
  return all;
}

/// A part of a model that is called as a whole and lives on one partition. Every rank makes all
/// units and runs those of its own. Inputs must not be changed in place.
struct Unit {
  std::string name;                     ///< not empty, and unique in the model
  UnitFunction forward;                 ///< takes its inputs, returns at least one tensor
  std::vector<NamedTensor> parameters;  ///< what the optimizer updates
  std::vector<NamedTensor> buffers;     ///< what else checkpoints keep
  /// Keep nothing but the inputs for the backward, which then runs `forward` once more, with the
  /// random numbers of the first time.
  bool recompute = false;
};

}  // namespace smp
