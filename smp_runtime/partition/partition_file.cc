// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/partition_file.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::partition {
namespace {

constexpr std::size_t kLongestSummary = 1000;

void check_names(const Assignment& named, const std::string& where, const ModuleTree& tree) {
  std::vector<std::string_view> known;
  for (int node = 0; node < tree.size(); ++node) known.push_back(tree.module(node).name);
  for (const auto& [name, partition] : named.partition_of) {
    if (tree.find(name)) continue;
    const std::vector<std::string_view> near = near_names(name, known);
    throw ConfigError("{}: it names module \"{}\", which this model does not have; {}", where, name,
                      near.empty()
                          ? "names are those of named_modules() of the model before it is wrapped"
                          : fmt::format("did you mean {}?", fmt::join(near, " or ")));
  }
  if (!named.partition_of.contains("")) {
    throw ConfigError(
        "{}: it does not name the model itself; add the entry \"\": 0 to \"modules\", the "
        "partition "
        "of the root and of what has no entry",
        where);
  }
}

void check_used(const Assignment& assignment, const std::string& where, const ModuleTree& tree) {
  std::vector<bool> used(static_cast<std::size_t>(assignment.partitions), false);
  for (int node = 0; node < tree.size(); ++node) {
    const Module& module = tree.module(node);
    if (module.called) used[static_cast<std::size_t>(assignment.at(module.name))] = true;
  }
  for (std::size_t partition = 0; partition < used.size(); ++partition) {
    if (used[partition]) continue;
    throw ConfigError(
        "{}: no module that is run is on partition {}; expected one or more on each of 0 to {}: "
        "add an entry, or take fewer partitions",
        where, partition, assignment.partitions - 1);
  }
}

Assignment read_named(std::string_view text, const std::string& where, int partitions) {
  Assignment named = Assignment::from_json(text, where);
  if (named.partitions != partitions) {
    throw ConfigError(
        "{}: it is for {} partitions, but the job has partitions={}; have a file written for this "
        "job, without load_partition, or start it with partitions={}",
        where, named.partitions, partitions, named.partitions);
  }
  return named;
}

}  // namespace

std::string partition_file_text(const Assignment& assignment, const ModuleTree& tree,
                                const std::string& summary) {
  Assignment named{.partitions = assignment.partitions, .partition_of = {}};
  for (int node = 0; node < tree.size(); ++node) {
    const std::string& name = tree.module(node).name;
    const int partition = assignment.at(name);
    if (node == 0 || partition != assignment.at(tree.module(tree.parent(node)).name)) {
      named.partition_of.emplace(name, partition);
    }
  }
  auto root = nlohmann::ordered_json::parse(named.to_json());
  root["summary"] = summary;
  return root.dump(1) + "\n";
}

std::string read_partition_summary(std::string_view text, const std::string& where,
                                   int partitions) {
  read_named(text, where, partitions);
  const auto root = nlohmann::json::parse(text);
  const auto found = root.find("summary");
  if (found == root.end() || !found->is_string()) return "";
  std::string summary = found->get<std::string>().substr(0, kLongestSummary);
  std::ranges::replace_if(
      summary, [](char byte) { return byte < ' ' || byte > '~'; }, '?');
  return summary;
}

Assignment read_partition_file(std::string_view text, const std::string& where,
                               const ModuleTree& tree, int partitions) {
  const Assignment named = read_named(text, where, partitions);
  check_names(named, where, tree);
  std::vector<int> partition_of(static_cast<std::size_t>(tree.size()), 0);
  for (int node = 0; node < tree.size(); ++node) {
    const auto found = named.partition_of.find(tree.module(node).name);
    partition_of[node] =
        found != named.partition_of.end() ? found->second : partition_of[tree.parent(node)];
  }
  Assignment assignment = make_assignment(tree, partition_of, partitions);
  try {
    check_fits(assignment, tree, partitions);
  } catch (const ConfigError& error) {
    throw ConfigError("{}: {}", where, error.what());
  }
  check_used(assignment, where, tree);
  return assignment;
}

}  // namespace smp::partition
