// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/parameter_names.h"

#include <utility>

#include <fmt/format.h>

#include "smp_runtime/core/error.h"

namespace smp::api {

ParameterNames::ParameterNames(const std::vector<Unit>& units) {
  for (const Unit& unit : units) {
    for (const NamedTensor& parameter : unit.parameters) {
      std::string name = fmt::format("{}.{}", unit.name, parameter.name);
      const auto [found, is_new] =
          number_of_.emplace(parameter.tensor.unsafeGetTensorImpl(), names_.size());
      if (is_new) {
        names_.push_back(std::move(name));
      } else {
        tied_.emplace(std::move(name), names_[found->second]);
      }
    }
  }
}

const std::string& ParameterNames::of(const at::Tensor& parameter) const {
  const auto found = number_of_.find(parameter.unsafeGetTensorImpl());
  SMP_CHECK(found != number_of_.end(), "a tensor is no parameter of the model");
  return names_[found->second];
}

std::vector<std::string> ParameterNames::of_all(
    const std::vector<sharding::StoredParameter>& parameters) const {
  std::vector<std::string> names;
  for (const sharding::StoredParameter& parameter : parameters)
    names.push_back(of(parameter.tensor));
  return names;
}

}  // namespace smp::api
