// SPDX-License-Identifier: Apache-2.0
// Programs in C++ of one process, as their authors write them.
#include <cstdlib>
#include <filesystem>

#include "smp/checkpoint.h"
#include "smp/groups.h"
#include "smp/model.h"
#include "smp/optimizer.h"
#include "smp/session.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include "smp_runtime/api/optimizer_fields.h"
#include "smp_runtime/api/recomputation.h"
#include "smp_runtime/checkpoint/state/objects.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace smp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor a_parameter(std::int64_t rows, std::int64_t columns) {
  return at::arange(rows * columns, at::kFloat)
      .view({rows, columns})
      .mul(0.01)
      .set_requires_grad(true);
}

/// x -> relu(x a), x -> x b.
struct Net {
  at::Tensor a = a_parameter(4, 6);
  at::Tensor b = a_parameter(6, 2);

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const {
    return x.matmul(a).relu().matmul(b);
  }
  [[nodiscard]] std::vector<Unit> units(bool recompute = false) const {
    return {{.name = "body",
             .forward = [a = a](const at::Tensor& x) { return x.matmul(a).relu(); },
             .parameters = {{"weight", a}},
             .recompute = recompute},
            {.name = "head",
             .forward = [b = b](const at::Tensor& x) { return x.matmul(b); },
             .parameters = {{"weight", b}}}};
  }
};

const at::Tensor kBatch = at::arange(32, at::kFloat).view({8, 4}).sin();

Step training_of(DistributedModel& model) {
  return step(model, [&model](const Microbatch& part) {
    const at::Tensor loss = model.forward(part[0]).square().sum();
    model.backward(loss);
    return loss;
  });
}

TEST(Session, OfOneProcessHasAllToItself) {
  Session session = Session::from_settings(R"({"microbatches": 4})");

  EXPECT_EQ(session.rank(), 0);
  EXPECT_EQ(session.size(), 1);
  EXPECT_EQ(session.pp_size(), 1);
  EXPECT_EQ(session.dp_size(), 1);
  EXPECT_EQ(session.microbatches(), 4);
  EXPECT_THAT(ranks_of(session, CommGroup::kDp), ElementsAre(0));
  EXPECT_EQ(process_group(session, CommGroup::kWorld)->getSize(), 1);
  session.barrier();
}

TEST(Session, RefusesSettingsByName) {
  const auto refused = [](std::string_view settings, const std::string& text) {
    EXPECT_THAT([&] { static_cast<void>(Session::from_settings(settings)); },
                ThrowsMessage<ConfigError>(HasSubstr(text)));
  };

  refused(R"({"microbatch": 4})", "microbatches");
  refused(R"({"microbatches": )", "smp::Session::from_settings");
  refused("pipeline_parallel_degree=2", "world size 1 is not divisible by partitions 2");
  refused("load_partition=True,partition_file=\"p.json\"",
          "load_partition is not available to C++ programs");
  refused("tensor_parallel_degree=2,ddp=True", "is not available to C++ programs");
}

TEST(Session, RefusesASelfCheckWhichPythonAloneHas) {
  ASSERT_EQ(setenv("SMP_SELF_CHECK", "1", 1), 0);

  EXPECT_THAT([] { static_cast<void>(Session::from_environment()); },
              ThrowsMessage<ConfigError>(HasSubstr("SMP_SELF_CHECK is not available")));

  unsetenv("SMP_SELF_CHECK");
}

TEST(Session, ComesAfterAnotherInOneProcess) {
  for (int number = 0; number < 2; ++number) {
    Session session = Session::from_settings("");
    at::Tensor one = at::ones({1});
    std::vector<at::Tensor> tensors{one};
    process_group(session, CommGroup::kWorld)->allreduce(tensors)->wait();
    EXPECT_EQ(one.item<float>(), 1);
    EXPECT_THAT([&] { session.progress(0); },
                ThrowsMessage<ConfigError>(HasSubstr("progress got 0")));
    session.progress(10);
  }
}

TEST(Model, GradientsAreThoseOfThePlainModel) {
  for (const bool recompute : {false, true}) {
    const Net plain;
    (plain(kBatch).square().sum() / 2).backward();
    Session session = Session::from_settings("microbatches=2");
    const Net net;
    DistributedModel model(session, net.units(recompute));
    Step train = training_of(model);

    const StepOutput losses = train(kBatch);

    EXPECT_EQ(losses.microbatches.size(), 2U);
    EXPECT_TRUE(at::allclose(losses.mean(), plain(kBatch).square().sum() / 2));
    EXPECT_TRUE(at::allclose(net.a.grad(), plain.a.grad(), 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(net.b.grad(), plain.b.grad(), 1e-5, 1e-6));
  }
}

TEST(Model, SaysWhatACallOutsideOfAStepNeeds) {
  Session session = Session::from_settings("");
  const Net net;
  DistributedModel model(session, net.units());

  EXPECT_THAT([&] { static_cast<void>(model.forward(kBatch)); },
              ThrowsMessage<UserCodeError>(HasSubstr("outside a step")));
  EXPECT_THAT([&] { static_cast<void>(model.call("body", kBatch)); },
              ThrowsMessage<UserCodeError>(HasSubstr("unit \"body\" was called outside a step")));
  EXPECT_THAT([&] { static_cast<void>(model.partition_of("tail")); },
              ThrowsMessage<ConfigError>(HasSubstr("tail")));
}

TEST(Model, NamesTheUnitThatReturnsNothing) {
  Session session = Session::from_settings("");
  const Net net;
  auto units = net.units();
  units[0].forward = [](const Tensors&) { return Tensors(); };
  DistributedModel model(session, units);
  Step run = step(model, [&](const Microbatch& part) { return model.forward(part[0]); });

  EXPECT_THAT([&] { run(kBatch); },
              ThrowsMessage<UserCodeError>(HasSubstr("unit \"body\" returned no tensor")));
}

TEST(Model, RefusesABatchThatMicrobatchesDoNotDivide) {
  Session session = Session::from_settings("microbatches=3");
  const Net net;
  DistributedModel model(session, net.units());
  Step train = training_of(model);

  EXPECT_THAT([&] { train(kBatch); },
              ThrowsMessage<ConfigError>(HasSubstr("tensor 0 of the batch, of shape [8, 4], does "
                                                   "not divide into microbatches=3")));
}

TEST(Model, AnErrorOfTheBodyComesOutOfTheStepAndTheNextOneRuns) {
  Session session = Session::from_settings("microbatches=2");
  const Net net;
  DistributedModel model(session, net.units());
  bool fails = true;
  Step run = step(model, [&](const Microbatch& part) {
    if (fails && part.index == 1) throw std::runtime_error("the second one is odd");
    return model.forward(part[0]);
  });

  EXPECT_THAT([&] { run(kBatch); },
              ThrowsMessage<std::runtime_error>(HasSubstr("the second one is odd")));
  fails = false;
  EXPECT_EQ(run(kBatch).microbatches.size(), 2U);
}

TEST(Optimizer, StepsAsThePlainOneDoes) {
  Net plain;
  torch::optim::SGD reference({plain.a, plain.b}, torch::optim::SGDOptions(0.01).momentum(0.9));
  Session session = Session::from_settings("");
  const Net net;
  DistributedModel model(session, net.units());
  DistributedOptimizer optimizer(
      model, torch::optim::SGD(model.parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)));
  Step train = training_of(model);

  for (int number = 0; number < 3; ++number) {
    reference.zero_grad();
    plain(kBatch).square().sum().backward();
    reference.step();
    optimizer.zero_grad();
    train(kBatch);
    optimizer.step();
  }

  EXPECT_TRUE(at::equal(net.a, plain.a));
  EXPECT_TRUE(at::equal(net.b, plain.b));
}

TEST(Optimizer, RefusesParametersThatAreNotTheModels) {
  Session session = Session::from_settings("");
  const Net net;
  const Net other;
  DistributedModel model(session, net.units());

  EXPECT_THROW(DistributedOptimizer(model, torch::optim::SGD({other.a}, 0.1)), ConfigError);
}

TEST(Checkpoint, BringsBackModelOptimizerAndContent) {
  const testing_support::TemporaryFolder folder;
  Session session = Session::from_settings("");
  const auto trained = [&](int steps, bool resumes) {
    const Net net;
    DistributedModel model(session, net.units());
    DistributedOptimizer optimizer(model, torch::optim::Adam(model.parameters(), 0.01));
    Step train = training_of(model);
    if (resumes) {
      const c10::IValue content = resume_from_checkpoint(session, folder.path(), model,
                                                         {.tag = "", .optimizer = &optimizer});
      EXPECT_EQ(content.toInt(), 2);
    }
    for (int number = 0; number < steps; ++number) {
      optimizer.zero_grad();
      train(kBatch);
      optimizer.step();
    }
    if (!resumes && steps == 2) {
      EXPECT_FALSE(has_checkpoint(session, folder.path()));
      save_checkpoint(session, folder.path(), model,
                      {.tag = "two", .optimizer = &optimizer, .user_content = std::int64_t{2}});
      EXPECT_TRUE(has_checkpoint(session, folder.path()));
    }
    return std::vector{net.a.detach().clone(), net.b.detach().clone()};
  };

  trained(2, /*resumes=*/false);
  const auto resumed = trained(3, /*resumes=*/true);
  const auto straight = trained(5, /*resumes=*/false);

  EXPECT_TRUE(at::equal(resumed[0], straight[0]));
  EXPECT_TRUE(at::equal(resumed[1], straight[1]));
}

TEST(Checkpoint, HasOneMemoryForATiedParameter) {
  const testing_support::TemporaryFolder folder;
  Session session = Session::from_settings("");
  const at::Tensor shared = a_parameter(4, 4);
  const auto times = [&](std::string name) -> Unit {
    return {.name = std::move(name),
            .forward = [shared](const at::Tensor& x) { return x.matmul(shared); },
            .parameters = {{"weight", shared}}};
  };
  DistributedModel model(session, std::vector<Unit>{times("first"), times("second")});

  save_checkpoint(session, folder.path(), model, {.tag = "one"});

  const auto saved =
      checkpoint::read_object(folder.path() / "one_partial/model_0_0.pt").toGenericDict();
  const at::Tensor first = saved.at("first.weight").toTensor();
  EXPECT_TRUE(at::equal(first, shared));
  EXPECT_TRUE(first.is_alias_of(saved.at("second.weight").toTensor()));
}

TEST(Checkpoint, RefusesTagsFoldersAndModelsThatDoNotFit) {
  const testing_support::TemporaryFolder folder;
  Session session = Session::from_settings("");
  const Net net;
  DistributedModel model(session, net.units());
  for (const char* tag : {"", "a/b", ".hidden"}) {
    EXPECT_THROW(save_checkpoint(session, folder.path(), model, {.tag = tag}), ConfigError) << tag;
  }
  EXPECT_THROW(resume_from_checkpoint(session, folder.path(), model), ConfigError);

  save_checkpoint(session, folder.path(), model, {.tag = "one"});
  auto units = net.units();
  units[1].name = "tail";
  DistributedModel other(session, units);

  EXPECT_THAT([&] { resume_from_checkpoint(session, folder.path(), other); },
              ThrowsMessage<ConfigError>(HasSubstr("tail.weight")));
}

TEST(Recomputation, RunsOnceMoreWithTheSameRandomNumbersAndLeavesBuffersAlone) {
  int calls = 0;
  const at::Tensor buffer = at::zeros({1});
  const auto call = [&](const Tensors& in) -> Tensors {
    ++calls;
    {
      const at::NoGradGuard no_grad;
      buffer.add_(1);
    }
    return {in[0].mul(at::rand({3}))};
  };
  const at::Tensor input = at::ones({3}).set_requires_grad(true);

  const at::Tensor output = api::recomputed(call, {input}, {buffer}, at::kCPU, nullptr, 0)[0];
  static_cast<void>(at::rand({100}));
  output.sum().backward();

  EXPECT_EQ(calls, 2);
  EXPECT_EQ(buffer.item<float>(), 1) << "changes of the second time are undone";
  EXPECT_TRUE(at::equal(input.grad(), output.detach())) << "of the factors that were drawn first";
}

TEST(OptimizerFields, KeepStateAndSettingsByPyTorchsNames) {
  const at::Tensor parameter = at::ones({3}).set_requires_grad(true);
  torch::optim::Adam from({parameter}, torch::optim::AdamOptions(0.1).betas({0.8, 0.9}));
  parameter.mutable_grad() = at::full({3}, 2.0);
  from.step();
  const api::OptimizerFields& fields = api::fields_of(from);
  const api::ParameterState state = fields.state_of(from, parameter);
  EXPECT_EQ(fields.kind(), "Adam");
  EXPECT_EQ(state.step, 1);
  EXPECT_TRUE(at::allclose(state.tensors.at("exp_avg"), at::full({3}, 0.4)));

  torch::optim::Adam to({parameter}, 0.5);
  EXPECT_TRUE(fields.state_of(to, parameter).empty());
  fields.put_state(to, parameter, state);
  fields.put_settings(to.param_groups()[0], fields.settings_of(from.param_groups()[0]));

  EXPECT_TRUE(at::equal(fields.state_of(to, parameter).tensors.at("exp_avg_sq"),
                        state.tensors.at("exp_avg_sq")));
  EXPECT_EQ(fields.settings_of(to.param_groups()[0]).betas, std::pair(0.8, 0.9));
  EXPECT_EQ(fields.settings_of(to.param_groups()[0]).numbers.at("lr"), 0.1);
}

TEST(OptimizerFields, AreNotThereForOtherOptimizers) {
  const torch::optim::LBFGS optimizer({at::ones({1})});

  EXPECT_EQ(api::find_fields_of(optimizer), nullptr);
  EXPECT_THAT([&] { static_cast<void>(api::fields_of(optimizer)); },
              ThrowsMessage<ConfigError>(HasSubstr("SGD, Adam, AdamW, RMSprop and Adagrad")));
}

}  // namespace
}  // namespace smp
