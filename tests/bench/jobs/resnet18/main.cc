// SPDX-License-Identifier: Apache-2.0
// One rank of ci/bench resnet18: replicas of ResNet-18 (arXiv:1512.03385) whose gradients are
// averaged beside the backward.
//
//     resnet18 BATCH STEPS
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <vector>

#include <smp/smp.h>
#include <torch/torch.h>

namespace nn = torch::nn;

nn::Conv2d convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

struct BlockImpl : nn::Module {
  BlockImpl(int64_t in, int64_t out, int64_t stride)
      : first(register_module("first", convolution(in, out, 3, stride))),
        second(register_module("second", convolution(out, out, 3, 1))),
        norm1(register_module("norm1", nn::BatchNorm2d(out))),
        norm2(register_module("norm2", nn::BatchNorm2d(out))) {
    if (in == out) return;
    shortcut = register_module(
        "shortcut", nn::Sequential(convolution(in, out, 1, stride), nn::BatchNorm2d(out)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor skip = shortcut.is_empty() ? x : shortcut->forward(x);
    return torch::relu(norm2(second(torch::relu(norm1(first(x))))) + skip);
  }

  nn::Conv2d first, second;
  nn::BatchNorm2d norm1, norm2;
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Block);

nn::Sequential make_net() {
  nn::Sequential net(convolution(3, 64, 7, 2), nn::BatchNorm2d(64), nn::ReLU(),
                     nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  int64_t width = 64;
  for (const int64_t out : {64, 128, 256, 512}) {
    net->push_back(Block(width, out, width == out ? 1 : 2));
    net->push_back(Block(out, out, 1));
    width = out;
  }
  net->push_back(nn::AdaptiveAvgPool2d(1));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(512, 1000));
  return net;
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const int64_t batch = std::atoll(arguments[1]);
  const int64_t steps = std::atoll(arguments[2]);
  smp::Session session = smp::Session::from_settings(R"({"ddp": true, "microbatches": 1})");
  torch::set_num_threads(1);
  nn::Sequential net = make_net();
  smp::DistributedModel model(session, smp::units_of(net));
  smp::DistributedOptimizer optimizer(model, torch::optim::SGD(model.parameters(), 0.01));
  auto train = smp::step(model, [&](const smp::Microbatch& in) {
    const torch::Tensor loss = nn::functional::cross_entropy(model.forward(in[0]), in[1]);
    model.backward(loss);
    return loss;
  });
  const torch::Tensor images = torch::randn({batch, 3, 224, 224});
  const torch::Tensor classes = torch::randint(1000, {batch}, torch::kInt64);
  std::vector<double> seconds;
  for (int64_t step = 0; step < steps; ++step) {
    session.barrier();
    const auto begin = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    train(images, classes);
    optimizer.step();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  if (session.rank() != 0) return 0;
  std::cout << "RESULT [";
  for (std::size_t step = 0; step < seconds.size(); ++step) {
    std::cout << (step == 0 ? "" : ", ") << seconds[step];
  }
  std::cout << "]" << std::endl;
}
