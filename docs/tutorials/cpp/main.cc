// Learns which of three spirals a point of the plane lies on.
#include <cstdio>
#include <string>

#include <smp/smp.h>
#include <torch/torch.h>

namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct Points {
  torch::Tensor places;   // [points, 2]
  torch::Tensor spirals;  // [points], from 0 to 2
};

Points make_points(int64_t count, uint64_t seed) {
  auto random = torch::make_generator<at::CPUGeneratorImpl>(seed);
  const torch::Tensor spirals = torch::randint(3, {count}, random, torch::kInt64);
  const torch::Tensor radius = torch::rand({count}, random);
  const torch::Tensor angle = 2.1 * spirals + 5 * radius + 0.1 * torch::randn({count}, random);
  return {torch::stack({radius * angle.sin(), radius * angle.cos()}, 1), spirals};
}

int main() {
  const smp::Job job = smp::Job::from_environment();
  smp::Session session = smp::Session::from_environment();

  torch::manual_seed(0);  // every process builds the same model
  nn::Sequential net(nn::Linear(2, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(),
                     nn::Linear(64, 64), nn::Tanh(), nn::Linear(64, 3));
  smp::DistributedModel model(session, smp::units_of(net));
  smp::DistributedOptimizer optimizer(
      model, torch::optim::Adam(model.parameters(), job.number("lr", 0.01)));

  auto train_step = smp::step(model, [&](const smp::Microbatch& batch) {
    const torch::Tensor loss = F::cross_entropy(model.forward(batch[0]), batch[1]);
    model.backward(loss);
    return loss;
  });
  auto test_step = smp::step(model, [&](const smp::Microbatch& batch) {
    const torch::Tensor scores = model.forward(batch[0]);
    const torch::Tensor right = (scores.argmax(1) == batch[1]).to(torch::kFloat);
    return torch::stack({F::cross_entropy(scores, batch[1]), right.mean()});
  });

  int64_t done = 0;
  if (smp::has_checkpoint(session, job.checkpoint_folder())) {
    done = smp::resume_from_checkpoint(session, job.checkpoint_folder(), model,
                                       {.optimizer = &optimizer})
               .toInt();
  }
  const Points train = make_points(1024, 1), test = make_points(512, 2);
  for (int64_t epoch = done + 1; epoch <= job.integer("epochs", 10); ++epoch) {
    torch::manual_seed(static_cast<uint64_t>(epoch));  // every process draws the same batches
    for (const torch::Tensor& batch : torch::randperm(1024).split(64)) {
      const torch::Tensor own = batch.chunk(session.dp_size())[session.dp_rank()];
      optimizer.zero_grad();
      train_step(train.places.index({own}), train.spirals.index({own}));
      optimizer.step();
    }
    const torch::NoGradGuard no_grad;
    const torch::Tensor result = test_step(test.places, test.spirals).mean();
    if (session.rank() == 0) {
      std::printf("epoch %2ld: test loss %.4f, accuracy %.1f %%\n", epoch, result[0].item<double>(),
                  100 * result[1].item<double>());
      std::fflush(stdout);
    }
    smp::save_checkpoint(
        session, job.checkpoint_folder(), model,
        {.tag = "epoch-" + std::to_string(epoch), .optimizer = &optimizer, .user_content = epoch});
  }
  smp::save_checkpoint(session, job.model_folder(), model, {.tag = "spirals"});
}
