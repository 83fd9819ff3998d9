// SPDX-License-Identifier: Apache-2.0
// A model that is no chain: a residual link across units, a unit that is called twice, one with two
// inputs. Prints the loss of each step, or the mistake that the hyperparameter `mistake` names.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include <ATen/autocast_mode.h>
#include <smp/groups.h>
#include <smp/smp.h>
#include <torch/torch.h>

namespace nn = torch::nn;

struct MixImpl : nn::Module {
  explicit MixImpl(double drop)
      : linear(register_module("linear", nn::Linear(16, 16))),
        norm(register_module("norm", nn::BatchNorm1d(16))),
        dropout(register_module("dropout", nn::Dropout(drop))) {}
  torch::Tensor forward(const torch::Tensor& a, const torch::Tensor& b) {
    ++calls;
    if (at::autocast::is_autocast_enabled(torch::kCPU)) ++calls_under_autocast;
    return torch::tanh(dropout(norm(linear(a)))) + b;
  }
  nn::Linear linear;
  nn::BatchNorm1d norm;
  nn::Dropout dropout;
  static inline std::atomic<int> calls = 0;
  static inline std::atomic<int> calls_under_autocast = 0;
};
TORCH_MODULE(Mix);

struct NetImpl : smp::UnitModule {
  NetImpl(bool recompute, double drop, bool twice)
      : embed(unit("embed", nn::Linear(8, 16), recompute)),
        mix(unit("mix", Mix(drop), recompute)),
        head(unit(twice ? "mix" : "head", nn::Linear(16, 1))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor first = embed(x);
    const torch::Tensor second = mix(first, first);
    return head(mix(second, first) + first);
  }

  smp::UnitCall embed, mix, head;
};
TORCH_MODULE(Net);

/// False where `train` has started the ranks before.
bool is_first_start() {
  const char* count = std::getenv("SM_RESTART_COUNT");
  return count == nullptr || std::string_view(count) == "0";
}

/// By an optimizer of torch's that nobody wrapped.
void train_plain(smp::DistributedModel& model) {
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  auto train = smp::step(model, [&](const smp::Microbatch& in) {
    const torch::Tensor loss = model.forward(in[0]).mean();
    model.backward(loss);
    return loss;
  });
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    train(torch::ones({8, 8}, torch::kDouble));
    optimizer.step();
  }
}

/// Prints the ranks of each group and the sum of their numbers in the job, as a collective makes
/// it.
void add_ranks_up(smp::Session& session) {
  for (const auto group : {smp::CommGroup::kWorld, smp::CommGroup::kPp, smp::CommGroup::kDp}) {
    std::vector<torch::Tensor> sum{torch::full({3}, session.rank())};
    smp::process_group(session, group)->allreduce(sum)->wait();
    std::cout << "rank " << session.rank() << " of";
    for (const int rank : smp::ranks_of(session, group)) std::cout << ' ' << rank;
    std::cout << " sums up to " << sum[0][2].item<int64_t>() << std::endl;
  }
}

int main() {
  const smp::Job job = smp::Job::from_environment();
  const std::string mistake = job.text("mistake", "");
  try {
    smp::Session session = smp::Session::from_environment();
    if (job.flag("groups", false)) {
      add_ranks_up(session);
      return 0;
    }
    torch::manual_seed(1);
    Net net(job.flag("recompute", false), job.number("drop", 0.0), mistake == "twice");
    const bool autocast = job.flag("autocast", false);  // leaves doubles as they are
    const auto type = autocast ? torch::kFloat : torch::kDouble;
    net->to(type);  // doubles, so that the printed digits depend on no order of sums
    for (auto& parameter : net->named_parameters()) {
      const bool is_frozen = parameter.key().find("embed") != std::string::npos;
      parameter.value().set_requires_grad(!(is_frozen && job.flag("freeze", false)));
    }
    smp::DistributedModel model = smp::distribute(session, net);
    if (mistake == "different") {
      torch::nn::Sequential other(torch::nn::Linear(8, 4 + session.rank()), torch::nn::ReLU());
      smp::DistributedModel(session, smp::units_of(other));
    }
    if (mistake == "ended") {
      { const smp::DistributedModel last = std::move(model); }
      net->embed(torch::ones({1, 8}, torch::kDouble));
    }
    if (mistake == "plain_optimizer") {
      train_plain(model);
      return 0;
    }
    smp::DistributedOptimizer optimizer(
        model, torch::optim::AdamW(model.parameters(), torch::optim::AdamWOptions(0.05)));
    if (mistake == "second_optimizer") {
      smp::DistributedOptimizer(model, torch::optim::SGD(model.parameters(), 0.1));
    }
    if (mistake == "outside") net->embed(torch::ones({1, 8}, torch::kDouble));
    if (smp::has_checkpoint(session, job.checkpoint_folder())) {
      smp::resume_from_checkpoint(session, job.checkpoint_folder(), model,
                                  {.optimizer = &optimizer});
    }
    auto train = smp::step(model, [&](const smp::Microbatch& in) {
      if (mistake == "undefined") return net->embed(torch::Tensor());
      if (mistake == "two_inputs") return net->embed(in[0], in[0]);
      if (mistake == "unknown") return model.call("no_such_unit", in[0]);
      at::autocast::set_autocast_enabled(torch::kCPU, autocast);
      const torch::Tensor loss = (model.forward(in[0]) - in[1]).square().mean();
      at::autocast::set_autocast_enabled(torch::kCPU, false);
      at::autocast::clear_cache();
      model.backward(loss);
      return loss;
    });
    const torch::Tensor data = torch::randn({8, 8}, type);
    const torch::Tensor target = data.sum(1, true);
    std::cout.precision(9);
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      if (mistake == "barrier" && step == 2 && session.rank() == 1) session.barrier();
      const double loss = train(data, target).mean().item<double>();
      const double norm = optimizer.clip_gradients(1.0);
      optimizer.step();
      if (session.rank() == 0) std::cout << "loss " << loss << ' ' << norm << std::endl;
      if (step == job.integer("save_after", -1)) {
        smp::save_checkpoint(session, job.checkpoint_folder(), model,
                             {.tag = "middle", .optimizer = &optimizer, .blocking = false});
        if (job.flag("wait", false)) smp::wait_for_saves(session);
      }
      smp::checkpoint_in_memory(session, job.checkpoint_folder(), model, {.optimizer = &optimizer});
      const int killed_after = job.integer("killed_after", -1);
      if (killed_after >= 0) smp::wait_for_saves(session);  // beside a save no state is taken
      if (step == killed_after && is_first_start() && session.rank() == session.size() - 1) {
        std::raise(SIGKILL);
      }
    }
    if (job.flag("save", false)) {
      smp::save_checkpoint(session, job.checkpoint_folder(), model,
                           {.tag = "end", .optimizer = &optimizer});
    }
    double statistics = 0;
    for (const auto& [name, value] : model.local_state()) {
      if (name.find("running") != std::string::npos) statistics += value.sum().item<double>();
    }
    std::cout << "statistics " << statistics << std::endl;
    if (autocast) {
      std::cout << "autocast in " << MixImpl::calls_under_autocast << " of " << MixImpl::calls
                << " calls" << std::endl;
    }
  } catch (const smp::Error& error) {
    std::cout << "error: " << error.what() << std::endl;
    return 3;
  } catch (const c10::Error& error) {
    std::cout << "error: " << error.what_without_backtrace() << std::endl;
    return 4;
  }
}
