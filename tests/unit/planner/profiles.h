// SPDX-License-Identifier: Apache-2.0
// A model of equal blocks, and machines, for tests of the planner.
#pragma once

#include <string>

#include "smp_runtime/planner/instance_table.h"
#include "smp_runtime/planner/model_profile.h"

namespace smp::planner {

struct BlockModel {
  int blocks = 8;
  std::int64_t elements = 1'000'000;  ///< of a block
  double flops = 1e12;                ///< of a block, forward, for the whole batch
  std::int64_t kept = 100 << 20;      ///< bytes of a block's activations
  std::int64_t passed = 1 << 20;      ///< bytes from block to block
  std::int64_t batch = 16;
};

inline ModelProfile profile_of(const BlockModel& model) {
  ModelProfile profile{.batch = model.batch, .optimizer = "AdamW"};
  const auto add = [&](ProfiledModule module) { profile.modules.push_back(std::move(module)); };
  add({.module = {.name = "", .passes_on = true}});
  for (int block = 0; block < model.blocks; ++block) {
    const std::string name = std::to_string(block);
    profile.parameters.push_back(
        {.name = name + ".weight", .elements = model.elements, .bytes = 4 * model.elements});
    add({.module = {.name = name,
                    .parameters = {block},
                    .input_bytes = model.passed,
                    .output_bytes = model.passed},
         .parent = 0,
         .work = {{.flops = model.flops}}});
    profile.tensors.push_back({.bytes = model.passed, .producer = block, .consumers = {block + 1}});
  }
  const std::size_t modules = profile.modules.size();
  Recomputation script{.name = "script",
                       .kept_bytes = std::vector<std::int64_t>(modules, model.kept),
                       .recomputed = std::vector<bool>(modules, false)};
  Recomputation blocks{.name = "blocks",
                       .change = "mark blocks",
                       .kept_bytes = std::vector<std::int64_t>(modules, model.passed),
                       .recomputed = std::vector<bool>(modules, true),
                       .once_bytes = model.kept};
  script.kept_bytes[0] = blocks.kept_bytes[0] = 0;
  blocks.recomputed[0] = false;
  profile.recomputations = {script, blocks};
  return profile;
}

}  // namespace smp::planner
