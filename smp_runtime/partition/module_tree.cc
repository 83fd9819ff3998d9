// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/module_tree.h"

#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::partition {

int ModuleTree::add_parameter(std::string name, std::int64_t bytes) {
  SMP_CHECK(bytes >= 0, "parameter {} has {} bytes", name, bytes);
  parameters_.push_back({.name = std::move(name), .bytes = bytes});
  return static_cast<int>(parameters_.size()) - 1;
}

int ModuleTree::add_module(Module module, int parent) {
  const int node = size();
  SMP_CHECK(parent >= -1 && parent < node && (parent == -1) == (node == 0),
            "module {} with number {} names {} as its parent", module.name, node, parent);
  SMP_CHECK(module.activation_bytes >= 0 && module.time_ns >= 0 && module.recompute_ns >= 0 &&
                module.recomputed_bytes >= 0 && module.input_bytes >= 0 &&
                module.output_bytes >= 0 && module.calls >= 0,
            "module {} has negative costs", module.name);
  for (const int id : module.parameters) {
    SMP_CHECK(id >= 0 && id < static_cast<int>(parameters_.size()), "module {} owns parameter {}",
              module.name, id);
  }
  SMP_CHECK(by_name_.emplace(module.name, node).second, "module {} was added twice", module.name);
  modules_.push_back(std::move(module));
  parents_.push_back(parent);
  children_.emplace_back();
  if (parent >= 0) children_[parent].push_back(node);
  return node;
}

void ModuleTree::add_tensor(Tensor tensor) {
  const auto known = [this](int node) { return node >= 0 && node < size(); };
  SMP_CHECK(tensor.bytes >= 0 && known(tensor.producer), "tensor of {} bytes made by module {}",
            tensor.bytes, tensor.producer);
  for (const int node : tensor.consumers) SMP_CHECK(known(node), "module {} reads a tensor", node);
  tensors_.push_back(std::move(tensor));
}

std::optional<int> ModuleTree::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

std::vector<int> ModuleTree::preorder() const {
  std::vector<int> order;
  std::vector<int> open;
  if (size() > 0) open.push_back(0);
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    order.push_back(node);
    open.insert(open.end(), children_[node].rbegin(), children_[node].rend());
  }
  return order;
}

bool ModuleTree::contains(int ancestor, int node) const {
  while (node > ancestor) node = parent(node);  // parents have smaller numbers
  return node == ancestor;
}

std::string display_name(const Module& module) {
  return module.name.empty() ? "(root)" : module.name;
}

}  // namespace smp::partition
