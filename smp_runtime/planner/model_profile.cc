// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/model_profile.h"

#include <algorithm>

#include "smp_runtime/core/error.h"

namespace smp::planner {

std::int64_t ModelProfile::elements() const {
  std::int64_t sum = 0;
  for (const ProfiledParameter& parameter : parameters) sum += parameter.elements;
  return sum;
}

std::int64_t ModelProfile::parameter_bytes() const {
  std::int64_t sum = 0;
  for (const ProfiledParameter& parameter : parameters) sum += parameter.bytes;
  return sum;
}

bool Recomputation::recomputes() const { return std::ranges::count(recomputed, true) > 0; }

const Recomputation* ModelProfile::without_recomputation() const {
  const auto found = std::ranges::find_if_not(recomputations, &Recomputation::recomputes);
  return found == recomputations.end() ? nullptr : &*found;
}

void check_profile(const ModelProfile& model) {
  const auto need = [](bool holds, std::string_view what) {
    if (!holds) throw ConfigError("the planner's profile of the model: {}", what);
  };
  need(!model.modules.empty(), "it has no module");
  need(model.batch >= 1, "a step has less than one sample");
  need(!model.recomputations.empty(), "it does not say what is recomputed");
  for (std::size_t number = 0; number < model.modules.size(); ++number) {
    const ProfiledModule& module = model.modules[number];
    need((number == 0) == (module.parent < 0) && module.parent < static_cast<int>(number),
         "parents do not come before their modules");
    for (const int parameter : module.module.parameters) {
      need(parameter >= 0 && static_cast<std::size_t>(parameter) < model.parameters.size(),
           "a module has a parameter that is not in its list");
    }
  }
  for (const Recomputation& one : model.recomputations) {
    need(one.kept_bytes.size() == model.modules.size() &&
             one.recomputed.size() == model.modules.size(),
         "a way to recompute is not of all modules");
  }
}

}  // namespace smp::planner
