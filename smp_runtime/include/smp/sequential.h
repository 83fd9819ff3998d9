// SPDX-License-Identifier: Apache-2.0
// torch::nn::Sequential as a chain of units. In a header of its own, which compiles in the program:
// the library knows no module of torch::nn.
#pragma once

#include <string>
#include <vector>

#include "smp/model.h"
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

namespace smp {

/// The children of `model`, named "0", "1", … or as they were added. They live as long as the units
/// do.
[[nodiscard]] inline std::vector<Unit> units_of(const torch::nn::Sequential& model) {
  std::vector<Unit> units;
  const auto children = model->named_children();
  std::size_t number = 0;
  for (torch::nn::AnyModule child : *model) {
    Unit unit{.name = children[number++].key(),
              .forward =
                  [child](const at::Tensor& input) mutable {
                    return child.forward<torch::Tensor>(input);
                  },
              .parameters = named_tensors(child.ptr()->named_parameters()),
              .buffers = named_tensors(child.ptr()->named_buffers())};
    units.push_back(std::move(unit));
  }
  return units;
}

}  // namespace smp
