// SPDX-License-Identifier: Apache-2.0
// Module trees for the partitioner's tests: a small builder, known architectures, random trees.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "smp_runtime/partition/module_tree.h"

namespace smp::partition {

/// Adds modules by dotted path: the parent is what stands before the last dot.
class TreeBuilder {
 public:
  TreeBuilder() { tree_.add_module({.name = ""}); }

  /// A module with one parameter of its own of `bytes`, or none if that is 0.
  TreeBuilder& add(const std::string& name, std::int64_t bytes = 0) {
    std::vector<int> own;
    if (bytes > 0) own.push_back(tree_.add_parameter(name + ".weight", bytes));
    return add_module({.name = name, .parameters = own});
  }

  /// A module whose parameter is the first one of `owner`.
  TreeBuilder& add_sharing(const std::string& name, const std::string& owner) {
    const int id = tree_.module(*tree_.find(owner)).parameters.at(0);
    return add_module({.name = name, .parameters = {id}});
  }

  /// A container that is never run.
  TreeBuilder& add_list(const std::string& name) {
    return add_module({.name = name, .called = false});
  }

  TreeBuilder& add_pinned(const std::string& name, int pin, std::int64_t bytes = 0) {
    std::vector<int> own;
    if (bytes > 0) own.push_back(tree_.add_parameter(name + ".weight", bytes));
    return add_module({.name = name, .parameters = own, .pin = pin});
  }

  TreeBuilder& add_module(Module module) {
    const size_t dot = module.name.rfind('.');
    const std::string above = dot == std::string::npos ? "" : module.name.substr(0, dot);
    const int parent = tree_.find(above).value();
    tree_.add_module(std::move(module), parent);
    return *this;
  }

  [[nodiscard]] const ModuleTree& tree() const { return tree_; }
  [[nodiscard]] ModuleTree take() { return std::move(tree_); }

 private:
  ModuleTree tree_;
};

inline void add_block(TreeBuilder& model, const std::string& name, std::int64_t width,
                      bool cross_attention = false) {
  model.add(name).add(name + ".ln_1", 2 * width);
  model.add(name + ".attn").add(name + ".attn.c_attn", 3 * width * width);
  model.add(name + ".attn.c_proj", width * width);
  if (cross_attention) model.add(name + ".cross", 4 * width * width);
  model.add(name + ".ln_2", 2 * width);
  model.add(name + ".mlp").add(name + ".mlp.c_fc", 4 * width * width).add(name + ".mlp.act");
  model.add(name + ".mlp.c_proj", 4 * width * width);
}

/// GPT-2's shape; the sizes are in elements.
inline ModuleTree gpt(int layers, std::int64_t width, std::int64_t vocabulary, bool tied = true) {
  TreeBuilder model;
  model.add("transformer").add("transformer.wte", vocabulary * width);
  model.add("transformer.wpe", 1024 * width).add("transformer.drop");
  model.add_list("transformer.h");
  for (int i = 0; i < layers; ++i) add_block(model, "transformer.h." + std::to_string(i), width);
  model.add("transformer.ln_f", 2 * width);
  if (tied) {
    model.add_sharing("lm_head", "transformer.wte");
  } else {
    model.add("lm_head", vocabulary * width);
  }
  return model.take();
}

/// T5's shape: two stacks over one embedding.
inline ModuleTree t5(int layers, std::int64_t width, std::int64_t vocabulary) {
  TreeBuilder model;
  model.add("encoder").add("encoder.embed_tokens", vocabulary * width).add_list("encoder.block");
  for (int i = 0; i < layers; ++i) add_block(model, "encoder.block." + std::to_string(i), width);
  model.add("decoder").add_sharing("decoder.embed_tokens", "encoder.embed_tokens");
  model.add_list("decoder.block");
  for (int i = 0; i < layers; ++i) {
    add_block(model, "decoder.block." + std::to_string(i), width, true);
  }
  model.add_sharing("lm_head", "encoder.embed_tokens");
  return model.take();
}

/// A tree of about `size` modules with random shape, costs, containers and shared parameters.
inline ModuleTree random_tree(std::uint32_t seed, int size, bool sharing) {
  std::mt19937 random(seed);
  const auto below = [&](int bound) { return static_cast<int>(random() % bound); };
  ModuleTree tree;
  tree.add_module({.name = ""});
  for (int i = 1; i < size; ++i) {
    Module module{.name = "m" + std::to_string(i)};
    module.called = below(8) != 0;
    module.activation_bytes = below(1000);
    module.time_ns = below(1000);
    if (below(5) != 0) {
      module.parameters.push_back(
          tree.add_parameter(module.name + ".weight", 1 + below(10) * below(1000)));
    }
    if (sharing && below(6) == 0 && !tree.parameters().empty()) {
      module.parameters.push_back(below(static_cast<int>(tree.parameters().size())));
    }
    const int parent = i < 4 ? 0 : below(3) == 0 ? 0 : below(i);
    tree.add_module(std::move(module), parent);
  }
  return tree;
}

}  // namespace smp::partition
