// SPDX-License-Identifier: Apache-2.0
// Programs in C++ on a GPU: they learn there what they learn on the CPU, alone and as ranks that
// share the card.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <smp/model.h>
#include <smp/module.h>
#include <smp/optimizer.h>
#include <smp/session.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

namespace {

namespace nn = torch::nn;
using ::testing::DoubleNear;
using ::testing::Pointwise;

constexpr int kSteps = 4;
constexpr int kNoGpu = 77;

struct MiddleImpl : nn::Module {
  explicit MiddleImpl(double drop)
      : linear(register_module("linear", nn::Linear(16, 16))),
        dropout(register_module("dropout", nn::Dropout(drop))) {}
  torch::Tensor forward(const torch::Tensor& x) { return dropout(linear(x)); }
  nn::Linear linear;
  nn::Dropout dropout;
};
TORCH_MODULE(Middle);

struct NetImpl : smp::UnitModule {
  NetImpl(bool recompute, double drop)
      : embed(unit("embed", nn::Linear(8, 16), recompute)),
        middle(unit("middle", Middle(drop), recompute)),
        head(unit("head", nn::Linear(16, 1))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor first = torch::tanh(embed(x));
    return head(torch::tanh(middle(first)) + first);
  }
  smp::UnitCall embed, middle, head;
};
TORCH_MODULE(Net);

struct Case {
  std::string name;
  int ranks;
  std::string settings;
  bool recompute = false;
  double drop = 0.0;  ///< share of the middle's results
};

/// The losses of some steps, as this rank sees them; empty where a step gave none.
std::vector<double> train(const Case& of, torch::Device device) {
  smp::Session session = smp::Session::from_settings(of.settings);
  torch::manual_seed(1);
  Net net(of.recompute, of.drop);
  const torch::Tensor data = torch::randn({8, 8}, torch::kDouble).to(device);
  const torch::Tensor target = data.sum(1, true);
  net->to(device, torch::kDouble);
  smp::DistributedModel model = smp::distribute(session, net);
  smp::DistributedOptimizer optimizer(
      model, torch::optim::AdamW(model.parameters(), torch::optim::AdamWOptions(0.05)));
  auto step = smp::step(model, [&](const smp::Microbatch& in) {
    const torch::Tensor loss = (model.forward(in[0]) - in[1]).square().mean();
    model.backward(loss);
    return loss;
  });
  std::vector<double> losses;
  for (int number = 0; number < kSteps; ++number) {
    optimizer.zero_grad();
    losses.push_back(step(data, target).mean().item<double>());
    optimizer.clip_gradients(1.0);
    optimizer.step();
  }
  return losses;
}

/// A port that nobody listens at.
std::string free_port() {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(file, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(file, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(file);
  return std::to_string(ntohs(address.sin_port));
}

/// One rank; ends the process.
[[noreturn]] void run_rank(const Case& of, bool on_gpu, int rank, const std::string& port,
                           int answer) {
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
  };
  if (of.ranks > 1) {
    for (const char* name : {"RANK", "LOCAL_RANK"}) set(name, std::to_string(rank));
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) set(name, std::to_string(of.ranks));
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", port);
  }
  set("SMP_TIMEOUT_SECONDS", "60");
  set("SMP_PROGRESS", "off");
  try {
    if (on_gpu && !torch::cuda::is_available()) _exit(kNoGpu);
    const torch::Device device = on_gpu ? torch::Device(torch::kCUDA, 0) : torch::kCPU;
    const std::vector<double> losses = train(of, device);
    if (rank == 0) {
      const auto size = static_cast<ssize_t>(losses.size() * sizeof(double));
      if (write(answer, losses.data(), static_cast<std::size_t>(size)) != size) _exit(2);
    }
  } catch (const std::exception& error) {
    std::cerr << of.name << ", rank " << rank << ": " << error.what() << std::endl;
    _exit(1);
  }
  _exit(0);
}

struct Outcome {
  std::vector<double> losses;
  int code = 0;  ///< the first that is not 0
};

/// In processes of their own: a GPU takes no process that was forked after it was used.
Outcome run(const Case& of, bool on_gpu) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  const std::string port = free_port();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < of.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_rank(of, on_gpu, rank, port, pipe_ends[1]);
    ranks.push_back(child);
  }
  close(pipe_ends[1]);
  Outcome outcome;
  double loss = 0;
  while (read(pipe_ends[0], &loss, sizeof(loss)) == sizeof(loss)) outcome.losses.push_back(loss);
  close(pipe_ends[0]);
  for (const pid_t child : ranks) {
    int status = 0;
    waitpid(child, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (outcome.code == 0) outcome.code = code;
  }
  return outcome;
}

/// True for a rehearsal on the CPU, which shows without a GPU that all can run.
bool is_rehearsed() { return std::getenv("SMP_GPU_REHEARSAL") != nullptr; }

class Programs : public ::testing::TestWithParam<Case> {};

TEST_P(Programs, LearnOnAGpuWhatOneProcessLearnsOnTheCpu) {
  const Outcome here = run({.name = "plain", .ranks = 1, .settings = R"({"microbatches": 2})"},
                           /*on_gpu=*/false);
  ASSERT_EQ(here.code, 0);
  ASSERT_EQ(here.losses.size(), kSteps);
  ASSERT_LT(here.losses.back(), 0.9 * here.losses.front()) << "it learns nothing";
  const Outcome there = run(GetParam(), !is_rehearsed());
  if (there.code == kNoGpu) GTEST_SKIP() << "needs a GPU";
  ASSERT_EQ(there.code, 0);
  EXPECT_THAT(there.losses, Pointwise(DoubleNear(1e-9), here.losses));
}

TEST(Recomputation, DrawsOnAGpuTheRandomNumbersOfTheForward) {
  Case of{.name = "dropout", .ranks = 1, .settings = R"({"microbatches": 2})", .drop = 0.5};
  const Outcome kept = run(of, !is_rehearsed());
  if (kept.code == kNoGpu) GTEST_SKIP() << "needs a GPU";
  of.recompute = true;
  const Outcome recomputed = run(of, !is_rehearsed());
  ASSERT_EQ(kept.code, 0);
  ASSERT_EQ(recomputed.code, 0);
  ASSERT_EQ(kept.losses.size(), kSteps);
  EXPECT_THAT(recomputed.losses, Pointwise(DoubleNear(1e-12), kept.losses));
}

TEST(SixteenBits, LearnOnAGpuAsOnTheCpuAndOverShards) {
  const Case of{.name = "bf16", .ranks = 1, .settings = R"({"microbatches": 2, "bf16": true})"};
  const Case over_shards{.name = "bf16 over shards", .ranks = 2, .settings = R"({
      "microbatches": 2, "bf16": true, "ddp": true, "sharded_data_parallel_degree": 2,
      "sdp_param_persistence_threshold": 1, "sdp_gradient_clipping": 0})"};
  const Outcome there = run(of, !is_rehearsed());
  if (there.code == kNoGpu) GTEST_SKIP() << "needs a GPU";
  const Outcome here = run(of, /*on_gpu=*/false);
  const Outcome shards = run(over_shards, !is_rehearsed());
  for (const Outcome& outcome : {there, here, shards}) {
    ASSERT_EQ(outcome.code, 0);
    ASSERT_EQ(outcome.losses.size(), kSteps);
  }
  ASSERT_LT(here.losses.back(), 0.9 * here.losses.front()) << "it learns nothing";
  EXPECT_THAT(there.losses, Pointwise(DoubleNear(0.02 * here.losses.front()), here.losses));
  EXPECT_THAT(shards.losses, Pointwise(DoubleNear(1e-6), there.losses));
}

INSTANTIATE_TEST_SUITE_P(
    , Programs,
    ::testing::Values(
        Case{"alone", 1, R"({"microbatches": 2})"},
        Case{"recomputed", 1, R"({"microbatches": 2})", true},
        Case{"offloaded", 1, R"({"microbatches": 2, "offload_activations": true})", true},
        Case{"pipeline", 2, R"({"microbatches": 2, "pipeline_parallel_degree": 2})"},
        Case{"replicas", 2, R"({"microbatches": 2, "ddp": true})"},
        Case{"sharded", 2, R"({"microbatches": 2, "ddp": true, "sharded_data_parallel_degree": 2,
                               "sdp_param_persistence_threshold": 1, "sdp_gradient_clipping": 0})"},
        Case{"sharded_optimizer", 2,
             R"({"microbatches": 2, "ddp": true, "shard_optimizer_state": true})"}),
    [](const auto& one) { return one.param.name; });

}  // namespace
