// SPDX-License-Identifier: Apache-2.0
// Well-known architectures as data: the fixed corpus on which the partitioner's quality is gated.
//
// Sizes are those of the published models: parameters in fp32 bytes, activations of one sample in
// bytes, times as FLOPs / 1000 (ns at 1 TFLOP/s).
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/partition/model_trees.h"

namespace smp::partition {

/// Adds modules in execution order; each leaf reads what the one before it made, unless told.
class ModelBuilder {
 public:
  ModelBuilder() { tree_.add_module({.name = ""}); }

  ModelBuilder& group(const std::string& name, bool called = true) {
    tree_.add_module({.name = name, .called = called}, parent_of(name));
    return *this;
  }

  /// A leaf of `elements` parameters that makes `out` values with `flops`.
  ModelBuilder& leaf(const std::string& name, std::int64_t elements, std::int64_t flops,
                     std::int64_t out, const std::vector<std::string>& inputs = {}) {
    std::vector<int> parameters;
    if (elements > 0) parameters.push_back(tree_.add_parameter(name + ".weight", 4 * elements));
    return add(name, parameters, flops, out, inputs);
  }

  ModelBuilder& tied(const std::string& name, const std::string& owner, std::int64_t flops,
                     std::int64_t out) {
    return add(name, tree_.module(*tree_.find(owner)).parameters, flops, out, {});
  }

  ModuleTree take() { return std::move(tree_); }

 private:
  int parent_of(const std::string& name) const {
    const size_t dot = name.rfind('.');
    return tree_.find(dot == std::string::npos ? "" : name.substr(0, dot)).value();
  }

  ModelBuilder& add(const std::string& name, std::vector<int> parameters, std::int64_t flops,
                    std::int64_t out, const std::vector<std::string>& inputs) {
    std::vector<int> sources;
    for (const std::string& input : inputs) sources.push_back(*tree_.find(input));
    if (inputs.empty()) sources.push_back(last_);
    std::int64_t in = 0;
    for (const int source : sources) in += std::max<std::int64_t>(4, 4 * out_[source]);
    const int node = tree_.add_module({.name = name,
                                       .parameters = std::move(parameters),
                                       .activation_bytes = 4 * out,
                                       .time_ns = flops / 1000,
                                       .input_bytes = in,
                                       .output_bytes = 4 * out},
                                      parent_of(name));
    out_.resize(node + 1, 0);
    out_[node] = out;
    for (const int source : sources) {
      tree_.add_tensor({.bytes = 4 * out_[source], .producer = source, .consumers = {node}});
    }
    last_ = node;
    return *this;
  }

  ModuleTree tree_;
  int last_ = 0;
  std::vector<std::int64_t> out_ = {0};
};

inline void add_transformer_block(ModelBuilder& model, const std::string& name, std::int64_t width,
                                  std::int64_t tokens, bool cross = false) {
  const std::int64_t square = width * width;
  const std::int64_t hidden = tokens * width;
  const auto linear = [&](const std::string& leaf, std::int64_t factor, std::int64_t out) {
    model.leaf(name + leaf, factor * square, 2 * tokens * factor * square, out);
  };
  model.group(name).leaf(name + ".ln_1", 2 * width, 8 * hidden, hidden).group(name + ".attn");
  linear(".attn.c_attn", 3, 3 * hidden);
  linear(".attn.c_proj", 1, hidden);
  if (cross) linear(".cross", 4, 2 * hidden);
  model.leaf(name + ".ln_2", 2 * width, 8 * hidden, hidden).group(name + ".mlp");
  linear(".mlp.c_fc", 4, 4 * hidden);
  model.leaf(name + ".mlp.act", 0, 8 * hidden, 4 * hidden);
  linear(".mlp.c_proj", 4, hidden);
}

inline ModuleTree decoder_only(int layers, std::int64_t width, std::int64_t vocabulary,
                               std::int64_t tokens, bool tied) {
  ModelBuilder model;
  model.group("transformer");
  model.leaf("transformer.wte", vocabulary * width, tokens * width, tokens * width);
  model.leaf("transformer.wpe", tokens * width, tokens * width, tokens * width);
  model.group("transformer.h", false);
  for (int i = 0; i < layers; ++i) {
    add_transformer_block(model, "transformer.h." + std::to_string(i), width, tokens);
  }
  model.leaf("transformer.ln_f", 2 * width, 8 * tokens * width, tokens * width);
  const std::int64_t flops = 2 * tokens * width * vocabulary;
  if (tied) {
    model.tied("lm_head", "transformer.wte", flops, tokens * vocabulary);
  } else {
    model.leaf("lm_head", vocabulary * width, flops, tokens * vocabulary);
  }
  return model.take();
}

inline ModuleTree encoder_decoder(int layers, std::int64_t width, std::int64_t vocabulary,
                                  std::int64_t tokens) {
  ModelBuilder model;
  model.group("encoder");
  model.leaf("encoder.embed", vocabulary * width, tokens * width, tokens * width);
  model.group("encoder.block", false);
  for (int i = 0; i < layers; ++i) {
    add_transformer_block(model, "encoder.block." + std::to_string(i), width, tokens);
  }
  model.group("decoder").tied("decoder.embed", "encoder.embed", tokens * width, tokens * width);
  model.group("decoder.block", false);
  for (int i = 0; i < layers; ++i) {
    add_transformer_block(model, "decoder.block." + std::to_string(i), width, tokens, true);
  }
  model.tied("lm_head", "encoder.embed", 2 * tokens * width * vocabulary, tokens * vocabulary);
  return model.take();
}

inline ModuleTree encoder_only(int layers, std::int64_t width, std::int64_t table,
                               std::int64_t tokens, std::int64_t classes) {
  ModelBuilder model;
  model.group("embeddings").leaf("embeddings.table", table, 2 * table, tokens * width);
  model.leaf("embeddings.norm", 2 * width, 8 * tokens * width, tokens * width);
  model.group("layer", false);
  for (int i = 0; i < layers; ++i) {
    add_transformer_block(model, "layer." + std::to_string(i), width, tokens);
  }
  model.leaf("head", width * classes, 2 * width * classes, classes);
  return model.take();
}

inline void add_convolution(ModelBuilder& model, const std::string& name, std::int64_t in,
                            std::int64_t out, std::int64_t kernel, std::int64_t side,
                            const std::vector<std::string>& inputs = {}) {
  const std::int64_t elements = in * out * kernel * kernel;
  model.leaf(name, elements, 2 * elements * side * side, out * side * side, inputs);
}

inline ModuleTree resnet50() {
  ModelBuilder model;
  add_convolution(model, "conv1", 3, 64, 7, 112);
  const int depths[] = {3, 4, 6, 3};
  std::int64_t in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = std::int64_t{64} << stage;
    const std::int64_t side = 56 >> stage;
    const std::string layer = "layer" + std::to_string(stage + 1);
    model.group(layer);
    for (int i = 0; i < depths[stage]; ++i) {
      const std::string block = layer + "." + std::to_string(i);
      model.group(block);
      add_convolution(model, block + ".conv1", in, width, 1, side);
      model.leaf(block + ".bn1", 2 * width, 8 * width * side * side, width * side * side);
      add_convolution(model, block + ".conv2", width, width, 3, side);
      add_convolution(model, block + ".conv3", width, 4 * width, 1, side);
      in = 4 * width;
    }
  }
  model.leaf("fc", 2048 * 1000, 2 * 2048 * 1000, 1000);
  return model.take();
}

/// Each decoder level reads the encoder's output of its size, too.
inline ModuleTree unet() {
  ModelBuilder model;
  constexpr int kLevels = 5;
  model.group("down", false);
  for (int i = 0; i < kLevels; ++i) {
    const std::string name = "down." + std::to_string(i);
    const std::int64_t width = std::int64_t{64} << i;
    model.group(name);
    add_convolution(model, name + ".a", i == 0 ? 3 : width / 2, width, 3, 512 >> i);
    add_convolution(model, name + ".b", width, width, 3, 512 >> i);
  }
  model.group("up", false);
  std::string below = "down.4.b";
  for (int i = kLevels - 2; i >= 0; --i) {
    const std::string name = "up." + std::to_string(i);
    const std::int64_t width = std::int64_t{64} << i;
    model.group(name);
    add_convolution(model, name + ".up", 2 * width, width, 2, 512 >> i, {below});
    add_convolution(model, name + ".a", 2 * width, width, 3, 512 >> i,
                    {name + ".up", "down." + std::to_string(i) + ".b"});
    add_convolution(model, name + ".b", width, width, 3, 512 >> i);
    below = name + ".b";
  }
  add_convolution(model, "head", 64, 2, 1, 512);
  return model.take();
}

inline ModuleTree two_tower() {
  ModelBuilder model;
  for (const char* tower : {"query", "item"}) {
    const std::string name = tower;
    model.group(name).leaf(name + ".embed", 500'000 * 128, 128 * 64, 128 * 64, {""});
    for (int i = 0; i < 6; ++i) {
      const std::int64_t width = name == "item" ? 1024 : 512;
      model.leaf(name + ".fc" + std::to_string(i), width * width, 2 * 64 * width * width,
                 64 * width);
    }
  }
  model.leaf("score", 1024 * 512, 2 * 64 * 1024 * 512, 64, {"query.fc5", "item.fc5"});
  return model.take();
}

/// Many tables of very different sizes, then a small network that reads them all.
inline ModuleTree dlrm() {
  ModelBuilder model;
  model.group("bottom");
  model.leaf("bottom.0", 13 * 512, 2 * 128 * 13 * 512, 128 * 512, {""});
  model.leaf("bottom.1", 512 * 64, 2 * 128 * 512 * 64, 128 * 64);
  model.group("tables", false);
  std::vector<std::string> all{"bottom.1"};
  const std::int64_t rows[] = {1460,  583,  10'131'227, 2'202'608, 305, 24,    12517,  633, 3,
                               93145, 5683, 8351593,    3194,      27,  14992, 5461,   306, 10,
                               5652,  2173, 4,          7046547,   18,  15,    286181, 105};
  int number = 0;
  for (const std::int64_t count : rows) {
    const std::string name = "tables." + std::to_string(number++);
    model.leaf(name, count * 16, 128 * 16, 128 * 16, {""});
    all.push_back(name);
  }
  model.group("top").leaf("top.0", 479 * 1024, 2 * 128 * 479 * 1024, 128 * 1024, all);
  model.leaf("top.1", 1024 * 1024, 2 * 128 * 1024 * 1024, 128 * 1024);
  model.leaf("top.2", 1024, 2 * 128 * 1024, 128);
  return model.take();
}

inline std::vector<std::pair<std::string, ModuleTree>> model_corpus() {
  std::vector<std::pair<std::string, ModuleTree>> corpus;
  const auto add = [&](const char* name, ModuleTree tree) {
    corpus.emplace_back(name, std::move(tree));
  };
  add("GPT-2", decoder_only(12, 768, 50257, 1024, true));
  add("GPT-2 XL", decoder_only(48, 1600, 50257, 1024, true));
  add("NeoX 20B", decoder_only(44, 6144, 50432, 2048, false));
  add("T5 large", encoder_decoder(24, 1024, 32128, 512));
  add("BERT large", encoder_only(24, 1024, 30522 * 1024, 512, 2));
  add("ViT-L/16", encoder_only(24, 1024, 768 * 1024, 197, 1000));
  add("ResNet-50", resnet50());
  add("U-Net", unet());
  add("two-tower", two_tower());
  add("DLRM", dlrm());
  return corpus;
}

}  // namespace smp::partition
