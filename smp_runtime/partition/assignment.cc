// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/assignment.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/fnv1a.h"

namespace smp::partition {
namespace {

using nlohmann::ordered_json;

void check_modules(const Assignment& assignment, const ModuleTree& tree) {
  for (const auto& [name, partition] : assignment.partition_of) {
    if (!tree.find(name)) {
      throw ConfigError(
          "the partition decision names module \"{}\", which this model does not have; it was made "
          "for another model",
          name);
    }
  }
  for (int node = 0; node < tree.size(); ++node) {
    if (!assignment.partition_of.contains(tree.module(node).name)) {
      throw ConfigError(
          "the partition decision does not name module \"{}\" of this model; it was made for "
          "another model",
          display_name(tree.module(node)));
    }
  }
}

void check_shared(const Assignment& assignment, const ModuleTree& tree) {
  std::vector<int> owner_of(tree.parameters().size(), -1);
  for (const int node : tree.preorder()) {
    const Module& module = tree.module(node);
    for (const int id : module.parameters) {
      if (owner_of[id] < 0) owner_of[id] = node;
      const Module& owner = tree.module(owner_of[id]);
      if (assignment.at(owner.name) == assignment.at(module.name)) continue;
      throw ConfigError(
          "modules {} (partition {}) and {} (partition {}) share parameter {}; put both on one "
          "partition",
          display_name(owner), assignment.at(owner.name), display_name(module),
          assignment.at(module.name), tree.parameters()[id].name);
    }
  }
}

}  // namespace

int Assignment::at(const std::string& module) const {
  const auto found = partition_of.find(module);
  SMP_CHECK(found != partition_of.end(), "no partition was decided for module \"{}\"", module);
  return found->second;
}

std::string Assignment::to_json() const {
  ordered_json modules = ordered_json::object();
  for (const auto& [name, partition] : partition_of) modules[name] = partition;
  const ordered_json root = {{"format", 1}, {"partitions", partitions}, {"modules", modules}};
  return root.dump(1) + "\n";
}

Assignment Assignment::from_json(std::string_view text, const std::string& where) {
  Assignment assignment;
  try {
    const auto root = nlohmann::json::parse(text);
    if (root.at("format") != 1) {
      throw ConfigError("{}: format {}; this version reads format 1", where,
                        root.at("format").dump());
    }
    assignment.partitions = root.at("partitions").get<int>();
    assignment.partition_of = root.at("modules").get<std::map<std::string, int>>();
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(
        R"({}: {}; expected {{"format": 1, "partitions": 2, "modules": {{"name": 0}}}})", where,
        error.what());
  }
  for (const auto& [name, partition] : assignment.partition_of) {
    if (partition < 0 || partition >= assignment.partitions) {
      throw ConfigError("{}: module \"{}\" is on partition {}; expected 0 to {}", where, name,
                        partition, assignment.partitions - 1);
    }
  }
  return assignment;
}

std::string Assignment::hash() const { return fmt::format("{:016x}", fnv1a(to_json())); }

Assignment make_assignment(const ModuleTree& tree, const std::vector<int>& partition_of_node,
                           int partitions) {
  Assignment assignment{.partitions = partitions, .partition_of = {}};
  for (int node = 0; node < tree.size(); ++node) {
    assignment.partition_of.emplace(tree.module(node).name, partition_of_node.at(node));
  }
  return assignment;
}

void check_fits(const Assignment& assignment, const ModuleTree& tree, int partitions) {
  if (assignment.partitions != partitions) {
    throw ConfigError("the partition decision is for {} partitions, but the job has partitions={}",
                      assignment.partitions, partitions);
  }
  check_modules(assignment, tree);
  check_shared(assignment, tree);
}

}  // namespace smp::partition
