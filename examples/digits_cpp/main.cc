// SPDX-License-Identifier: Apache-2.0
// Learns handwritten digits in C++, with a model split over processes.
//
// The channel `train` holds digits.csv: 1,797 images of 8 x 8 pixels (UCI, as shipped by
// scikit-learn), one a line, 64 values from 0 to 16 and the digit. The job's `mp_parameters` say
// how the model is split; the program is the same for any split, and for one process.
#include <cmath>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <smp/smp.h>
#include <torch/torch.h>

namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// A residual block: its input is used twice.
struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t width)
      : norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        inner(register_module("inner", nn::Linear(width, 2 * width))),
        outer(register_module("outer", nn::Linear(2 * width, width))) {}

  torch::Tensor forward(torch::Tensor x) { return x + outer(F::gelu(inner(norm(x)))); }

  nn::LayerNorm norm;
  nn::Linear inner, outer;
};
TORCH_MODULE(Block);

/// `shared` runs twice, before and after the other blocks, with the same parameters.
nn::Sequential make_net(int64_t width, int64_t depth) {
  nn::Linear embed(64, width);
  Block shared(width);
  nn::Sequential net(embed, shared);
  for (int64_t block = 0; block < depth; ++block) net->push_back(Block(width));
  net->push_back(shared);
  net->push_back(nn::LayerNorm(nn::LayerNormOptions({width})));
  net->push_back(nn::Linear(width, 10));
  return net;
}

struct Data {
  torch::Tensor images;  ///< [images, 64], from 0 to 1
  torch::Tensor digits;  ///< [images]
};

Data read_digits(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::vector<float> values;
  for (std::string number; std::getline(stream, number, values.size() % 65 == 64 ? '\n' : ',');) {
    values.push_back(std::stof(number));
  }
  if (values.empty()) throw smp::ConfigError(file.string() + ": cannot be read, or is empty");
  const torch::Tensor table = torch::tensor(values).view({-1, 65});
  return {table.slice(1, 0, 64) / 16, table.select(1, 64).to(torch::kInt64)};
}

int main() {
  const smp::Job job = smp::Job::from_environment();
  smp::Session session = smp::Session::from_environment();
  const int64_t epochs = job.integer("epochs", 12);
  const int64_t batch_size = job.integer("batch-size", 64);  // of the whole job
  const int64_t share = batch_size / session.dp_size();

  torch::manual_seed(static_cast<uint64_t>(job.integer("seed", 0)));
  nn::Sequential net = make_net(job.integer("width", 64), job.integer("depth", 3));
  smp::DistributedModel model(session, smp::units_of(net));
  smp::DistributedOptimizer optimizer(
      model,
      torch::optim::SGD(
          model.parameters(),
          torch::optim::SGDOptions(job.number("lr", 0.01)).momentum(0.9).weight_decay(1e-3)));

  auto train = smp::step(model, [&](const smp::Microbatch& in) {
    const torch::Tensor loss = F::cross_entropy(model.forward(in[0]), in[1]);
    model.backward(loss);
    return loss;
  });
  auto test = smp::step(model, [&](const smp::Microbatch& in) {
    return (model.forward(in[0]).argmax(1) == in[1]).sum();
  });

  const Data data = read_digits(job.channel("train") / "digits.csv");
  torch::Generator generator = torch::make_generator<at::CPUGeneratorImpl>(0);
  const torch::Tensor all = torch::randperm(data.digits.size(0), generator);
  const int64_t split = all.size(0) * 4 / 5 / batch_size * batch_size;
  const torch::Tensor tested = all.slice(0, split, all.size(0) / batch_size * batch_size);

  const bool speaks = session.rank() == 0;
  std::filesystem::create_directories(job.output_folder());
  // What a job that was interrupted goes on from.
  const bool saves = job.flag("save", true);
  int64_t done = 0;
  if (smp::has_checkpoint(session, job.checkpoint_folder())) {
    done = smp::resume_from_checkpoint(session, job.checkpoint_folder(), model,
                                       {.optimizer = &optimizer})
               .toInt();
  }
  std::ofstream curve;
  if (speaks)
    curve.open(job.output_folder() / "curve.txt", done > 0 ? std::ios::app : std::ios::out);
  curve.precision(9);
  for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
    const torch::Tensor order = all.slice(0, 0, split).index({torch::randperm(split, generator)});
    if (epoch <= done) continue;
    double loss = 0;
    for (const torch::Tensor& batch : order.split(batch_size)) {
      const torch::Tensor own =
          batch.slice(0, session.dp_rank() * share, (session.dp_rank() + 1) * share);
      optimizer.zero_grad();
      loss = train(data.images.index({own}), data.digits.index({own})).mean().item<double>();
      optimizer.step();
      if (speaks) curve << loss << '\n';
    }
    if (saves) {
      smp::save_checkpoint(session, job.checkpoint_folder(), model,
                           {.tag = "epoch-" + std::to_string(epoch),
                            .optimizer = &optimizer,
                            .user_content = epoch});
    }
    const torch::NoGradGuard no_grad;
    const smp::StepOutput right = test(data.images.index({tested}), data.digits.index({tested}));
    const double accuracy =
        torch::stack(right.microbatches).sum().item<double>() / static_cast<double>(tested.size(0));
    if (speaks) {
      std::cout << "epoch " << epoch << '/' << epochs << "  loss " << loss << "  test accuracy "
                << std::round(accuracy * 1000) / 10 << " %" << std::endl;
    }
  }

  std::vector<torch::Tensor> values;
  for (const auto& [name, value] : model.local_state()) values.push_back(value);
  if (session.dp_rank() == 0) {
    torch::save(values, job.model_folder() / ("part" + std::to_string(session.pp_rank()) + ".pt"));
  }
}
