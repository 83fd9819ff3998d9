// SPDX-License-Identifier: Apache-2.0
// The parts of a model that are placed: named functions with their parameters.
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace smp {

using Tensors = std::vector<at::Tensor>;

/// What a unit computes: tensors of tensors. Made from a function of one, two or three tensors that
/// returns one, or from a function of a list that returns a list.
class UnitFunction {
 public:
  UnitFunction() = default;
  template <typename Function>
  requires(!std::same_as<std::remove_cvref_t<Function>, UnitFunction>)
      UnitFunction(Function function)
      : run_(listed(std::move(function))) {}

  Tensors operator()(const Tensors& inputs) const { return run_(inputs); }
  explicit operator bool() const { return static_cast<bool>(run_); }

 private:
  template <typename Function>
  static std::function<Tensors(const Tensors&)> listed(Function function) {
    using T = const at::Tensor&;
    if constexpr (std::is_invocable_r_v<at::Tensor, Function&, T>) {
      return [function](const Tensors& in) mutable -> Tensors { return {function(in.at(0))}; };
    } else if constexpr (std::is_invocable_r_v<at::Tensor, Function&, T, T>) {
      return [function](const Tensors& in) mutable -> Tensors {
        return {function(in.at(0), in.at(1))};
      };
    } else if constexpr (std::is_invocable_r_v<at::Tensor, Function&, T, T, T>) {
      return [function](const Tensors& in) mutable -> Tensors {
        return {function(in.at(0), in.at(1), in.at(2))};
      };
    } else {
      static_assert(std::is_invocable_r_v<Tensors, Function&, const Tensors&>,
                    "a unit's function takes tensors and returns one, or lists of them");
      return function;
    }
  }

  std::function<Tensors(const Tensors&)> run_;
};

struct NamedTensor {
  std::string name;  ///< within its unit, as "weight" or "norm.bias"
  at::Tensor tensor;
};

/// Of what torch::nn::Module gives: named_parameters(), named_buffers().
template <typename Items>
[[nodiscard]] std::vector<NamedTensor> named_tensors(const Items& items) {
  std::vector<NamedTensor> all;
  for (const auto& item : items) all.push_back({item.key(), item.value()});
  return all;
}

/// A part of a model that is called as a whole and lives on one partition. Every rank makes all
/// units and runs those of its own. Inputs must not be changed in place.
struct Unit {
  std::string name;
  UnitFunction forward;
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
  /// Keep nothing but the inputs for the backward, which then runs `forward` once more, with the
  /// random numbers of the first time.
  bool recompute = false;
};

}  // namespace smp
