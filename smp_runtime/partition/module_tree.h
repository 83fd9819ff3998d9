// SPDX-License-Identifier: Apache-2.0
// A model as the partitioners see it: modules as a tree in execution order, with the parameters
// they own and what running them costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace smp::partition {

struct Parameter {
  std::string name;
  std::int64_t bytes = 0;
};

/// A tensor that one module made and others read, in one microbatch.
struct Tensor {
  std::int64_t bytes = 0;
  int producer = 0;  ///< node; the root for what the script passes in
  std::vector<int> consumers;
};

/// One module. Costs are its own, without those of its children, for one microbatch on one rank.
struct Module {
  std::string name;                   ///< dotted path; the root's is empty
  std::vector<int> parameters;        ///< ids of those it owns directly, from `add_parameter`
  std::int64_t activation_bytes = 0;  ///< kept from the forward to the backward
  std::int64_t time_ns = 0;           ///< forward
  /// With activation checkpointing: of the forward that its backward repeats, and what that makes.
  std::int64_t recompute_ns = 0;
  std::int64_t recomputed_bytes = 0;
  /// What goes to it and comes back in all of its calls, if its caller is on another rank.
  std::int64_t input_bytes = 0;
  std::int64_t output_bytes = 0;
  int calls = 1;  ///< in one microbatch
  /// False for containers that only hold others (ModuleList) and for modules whose parameters
  /// somebody else uses: neither is ever run, so neither can be reached on another rank.
  bool called = true;
  std::optional<int> pin = {};  ///< the partition its creator asked for
  /// Hands what one child returns to the next one, and nothing else (nn.Sequential): results go
  /// from device to device, not over its own.
  bool passes_on = false;
};

/// Nodes are numbered in the order in which they are added; parents come first. A module reached
/// over several paths is one node, under the parent that ran it first.
class ModuleTree {
 public:
  /// A parameter that several modules share is added once and named in each of them.
  int add_parameter(std::string name, std::int64_t bytes);

  /// The first module is the root and has no parent (-1). Siblings run in the order of adding.
  /// Throws InternalError for an unknown parent or parameter, a second root, a repeated name, and
  /// negative costs.
  int add_module(Module module, int parent = -1);

  /// Throws InternalError for an unknown node and for negative bytes.
  void add_tensor(Tensor tensor);

  [[nodiscard]] int size() const { return static_cast<int>(modules_.size()); }
  [[nodiscard]] const Module& module(int node) const { return modules_.at(node); }
  [[nodiscard]] int parent(int node) const { return parents_.at(node); }
  [[nodiscard]] const std::vector<int>& children(int node) const { return children_.at(node); }
  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }
  [[nodiscard]] std::optional<int> find(std::string_view name) const;

  /// All nodes in execution order, parents before children.
  [[nodiscard]] std::vector<int> preorder() const;

  /// True if `node` lies in the subtree of `ancestor`; a node lies in its own.
  [[nodiscard]] bool contains(int ancestor, int node) const;

 private:
  std::vector<Parameter> parameters_;
  std::vector<Module> modules_;
  std::vector<Tensor> tensors_;
  std::vector<int> parents_;
  std::vector<std::vector<int>> children_;
  std::unordered_map<std::string, int> by_name_;
};

/// "(root)" for the root, else its name.
std::string display_name(const Module& module);

}  // namespace smp::partition
