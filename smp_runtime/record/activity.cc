// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/record/activity.h"

namespace smp::record {
namespace {

struct Row {
  std::string_view name;
  Lane lane;
};

constexpr std::array<Row, kActivities> kRows = {{{"forward", Lane::kModules},
                                                 {"backward", Lane::kModules},
                                                 {"wait", Lane::kModules},
                                                 {"gather", Lane::kGathers},
                                                 {"reduce", Lane::kReductions},
                                                 {"exchange", Lane::kExchanges},
                                                 {"optimizer", Lane::kOptimizer},
                                                 {"data", Lane::kData}}};
constexpr std::array<std::string_view, kLanes> kLaneNames = {
    "modules", "gathers", "reductions", "tensor exchanges", "optimizer", "data"};

}  // namespace

std::string_view name_of(Activity activity) {
  return kRows[static_cast<std::size_t>(activity)].name;
}

Lane lane_of(Activity activity) { return kRows[static_cast<std::size_t>(activity)].lane; }

std::string_view name_of(Lane lane) { return kLaneNames[static_cast<std::size_t>(lane)]; }

}  // namespace smp::record
