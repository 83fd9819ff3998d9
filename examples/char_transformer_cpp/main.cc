// SPDX-License-Identifier: Apache-2.0
// A transformer that learns to spell, in C++: predicts the next character of a text.
//
// The channel `train` holds text files, such as /usr/share/common-licenses/GPL-3. The job's
// `mp_parameters` say how the model is split: with {"bf16": true, "ddp": true,
// "sharded_data_parallel_degree": 2} two processes share its state and compute in 16 bits. A job
// that was interrupted goes on from its newest checkpoint.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <smp/smp.h>
#include <torch/torch.h>

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr int64_t kHeads = 4;

/// Characters and their places, [batch, length] to [batch, length, width].
struct EmbedImpl : nn::Module {
  EmbedImpl(int64_t characters, int64_t length, int64_t width)
      : character(register_module("character", nn::Embedding(characters, width))),
        place(register_module("place", nn::Embedding(length, width))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return character(x) + place(torch::arange(x.size(1), x.options()));
  }

  nn::Embedding character, place;
};
TORCH_MODULE(Embed);

/// Attention to what was before, and a perceptron, each with a residual link.
struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t width)
      : before(register_module("before", nn::LayerNorm(nn::LayerNormOptions({width})))),
        between(register_module("between", nn::LayerNorm(nn::LayerNormOptions({width})))),
        attend(register_module("attend", nn::Linear(width, 3 * width))),
        join(register_module("join", nn::Linear(width, width))),
        inner(register_module("inner", nn::Linear(width, 4 * width))),
        outer(register_module("outer", nn::Linear(4 * width, width))) {}

  torch::Tensor forward(torch::Tensor x) {
    const auto heads = [&](const torch::Tensor& part) {
      return part.unflatten(2, {kHeads, -1}).transpose(1, 2);
    };
    const auto parts = attend(before(x)).chunk(3, 2);
    const torch::Tensor attended =
        at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]),
                                         /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
    x = x + join(attended.transpose(1, 2).flatten(2));
    return x + outer(F::gelu(inner(between(x))));
  }

  nn::LayerNorm before, between;
  nn::Linear attend, join, inner, outer;
};
TORCH_MODULE(Block);

/// Blocks keep their inputs alone for the backward, and run once more there.
struct TransformerImpl : smp::UnitModule {
  TransformerImpl(int64_t characters, int64_t length, int64_t width, int64_t depth)
      : embed(unit("embed", Embed(characters, length, width))) {
    for (int64_t block = 0; block < depth; ++block) {
      blocks.push_back(unit("block" + std::to_string(block), Block(width), /*recompute=*/true));
    }
    norm = unit("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    head = unit("head", nn::Linear(width, characters));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = embed(x);
    for (const smp::UnitCall& block : blocks) x = block(x);
    return head(norm(x));
  }

  smp::UnitCall embed, norm, head;
  std::vector<smp::UnitCall> blocks;
};
TORCH_MODULE(Transformer);

struct Text {
  torch::Tensor numbers;  ///< [characters of the text]
  int64_t characters;     ///< that differ
};

Text read_text(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(stream), {});
  }
  std::string known = text;
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  std::vector<int64_t> numbers;
  for (const char letter : text) {
    numbers.push_back(std::lower_bound(known.begin(), known.end(), letter) - known.begin());
  }
  return {torch::tensor(numbers), static_cast<int64_t>(known.size())};
}

int main() {
  const smp::Job job = smp::Job::from_environment();
  smp::Session session = smp::Session::from_environment();
  const int64_t steps = job.integer("steps", 200);
  const int64_t length = job.integer("length", 64);
  const int64_t batch = job.integer("batch-size", 16);  // of each replica

  const Text text = read_text(job.channel("train"));
  if (text.numbers.size(0) <= length + 1) {
    throw smp::ConfigError("the channel train holds " + std::to_string(text.numbers.size(0)) +
                           " characters; more than length + 1 = " + std::to_string(length + 1) +
                           " are needed");
  }
  torch::manual_seed(static_cast<uint64_t>(job.integer("seed", 0)));
  Transformer net(text.characters, length, job.integer("width", 64), job.integer("depth", 4));
  smp::DistributedModel model = smp::distribute(session, net);
  smp::DistributedOptimizer optimizer(
      model,
      torch::optim::AdamW(model.parameters(), torch::optim::AdamWOptions(job.number("lr", 2e-3))));
  auto train = smp::step(model, [&](const smp::Microbatch& in) {
    const torch::Tensor loss =
        F::cross_entropy(model.forward(in[0]).flatten(0, 1), in[1].flatten());
    model.backward(loss);
    return loss;
  });

  int64_t done = 0;
  if (smp::has_checkpoint(session, job.checkpoint_folder())) {
    done = smp::resume_from_checkpoint(session, job.checkpoint_folder(), model,
                                       {.optimizer = &optimizer})
               .toInt();
  }
  const torch::Tensor windows = text.numbers.unfold(0, length + 1, 1);
  for (int64_t step = done + 1; step <= steps; ++step) {
    // Each step and replica has places of its own, whatever happened before.
    auto generator = torch::make_generator<at::CPUGeneratorImpl>(
        static_cast<uint64_t>(step * session.dp_size() + session.dp_rank()));
    const torch::Tensor places = torch::randint(windows.size(0), {batch}, generator);
    const torch::Tensor chosen = windows.index({places});
    optimizer.zero_grad();
    const smp::StepOutput losses =
        train(chosen.slice(1, 0, length).contiguous(), chosen.slice(1, 1, length + 1).contiguous());
    optimizer.clip_gradients(1.0);
    optimizer.step();
    if (session.rank() == 0 && (step % 20 == 0 || step == steps)) {
      std::cout << "step " << step << ": loss " << losses.mean().item<double>() << std::endl;
    }
    if (step % job.integer("checkpoint-every", 100) == 0 || step == steps) {
      smp::save_checkpoint(
          session, job.checkpoint_folder(), model,
          {.tag = "step-" + std::to_string(step), .optimizer = &optimizer, .user_content = step});
    }
  }
}
