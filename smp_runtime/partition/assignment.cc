// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/assignment.h"

#include <cstdint>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::partition {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kExample =
    R"({"format": 1, "partitions": 2, "modules": {"": 0, "head": 1}})";

/// Throws ConfigError for text that is no JSON, or in which an object has a key twice: JSON's own
/// rule would take the last one silently.
json parsed(std::string_view text, const std::string& where) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw ConfigError("{}: it is empty; expected {}", where, kExample);
  }
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto look = [&](int depth, json::parse_event_t event, const json& value) {
    if (depth > kDeepestJson) {
      throw ConfigError("{}: it nests deeper than {}; expected {}", where, kDeepestJson, kExample);
    }
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw ConfigError("{}: it names {} twice; leave one of the entries", where, value.dump());
    }
    return true;
  };
  try {
    return json::parse(text, look);
  } catch (const json::exception& error) {       // a number that is too large is no parse_error
    const std::string_view said = error.what();  // "[json.exception.parse_error.101] parse error…"
    throw ConfigError("{}: it is no JSON ({}); expected {}", where,
                      said.substr(said.find("] ") + 2), kExample);
  }
}

/// The value of `key`. Throws ConfigError if it is missing or of another type than `type`.
const json& value_of(const json& root, const char* key, json::value_t type,
                     const std::string& where) {
  if (!root.is_object() || !root.contains(key)) {
    throw ConfigError("{}: it has no \"{}\"; expected {}", where, key, kExample);
  }
  const json& value = root[key];
  const bool fits = type == json::value_t::object ? value.is_object() : value.is_number_integer();
  if (fits) return value;
  throw ConfigError("{}: \"{}\" is {}; expected {}", where, key, value.dump(), kExample);
}

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
  const json root = parsed(text, where);
  const json& format = value_of(root, "format", json::value_t::number_integer, where);
  if (format != 1) {
    throw ConfigError("{}: format {}; this version reads format 1", where, format.dump());
  }
  Assignment assignment;
  const json& partitions = value_of(root, "partitions", json::value_t::number_integer, where);
  assignment.partitions = whole_number<int>(partitions).value_or(0);
  if (assignment.partitions < 1) {
    throw ConfigError("{}: \"partitions\" is {}; expected 1 or more", where, partitions.dump());
  }
  for (const auto& [name, value] :
       value_of(root, "modules", json::value_t::object, where).items()) {
    const int partition = whole_number<int>(value).value_or(-1);
    if (partition < 0 || partition >= assignment.partitions) {
      throw ConfigError(
          "{}: module \"{}\" is on partition {}; expected 0 to {}, for \"partitions\" is {}", where,
          name, value.dump(), assignment.partitions - 1, assignment.partitions);
    }
    assignment.partition_of.emplace(name, partition);
  }
  return assignment;
}

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

Assignment assign_manual(const ModuleTree& tree, int partitions, int default_partition) {
  std::vector<int> partition_of(tree.size(), default_partition);
  for (int node = 0; node < tree.size(); ++node) {
    if (node > 0) partition_of[node] = partition_of[tree.parent(node)];
    const auto& pin = tree.module(node).pin;
    if (pin) partition_of[node] = *pin;
    if (partition_of[node] < 0 || partition_of[node] >= partitions) {
      throw ConfigError("module {} is put on partition {}; expected 0 to {} with partitions={}",
                        display_name(tree.module(node)), partition_of[node], partitions - 1,
                        partitions);
    }
  }
  Assignment assignment = make_assignment(tree, partition_of, partitions);
  check_fits(assignment, tree, partitions);
  return assignment;
}

}  // namespace smp::partition
