// SPDX-License-Identifier: Apache-2.0
// A program of one process goes on from golden checkpoints, whatever job wrote them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/golden_checkpoints/program/network.h"

namespace golden {
namespace {

using nlohmann::json;

const std::filesystem::path kCheckpoints = SMP_GOLDEN_CHECKPOINTS;
constexpr const char* kSettings = R"({"ddp": true, "microbatches": 2})";

void flatten(const json& value, std::vector<double>& numbers) {
  if (value.is_number()) return numbers.push_back(value.get<double>());
  for (const json& element : value) flatten(element, numbers);
}

/// True if a tensor has the numbers of nested lists, to the bit.
bool is(const torch::Tensor& found, const json& value) {
  std::vector<double> numbers;
  flatten(value, numbers);
  const torch::Tensor right = torch::tensor(numbers, torch::kDouble).to(found.scalar_type());
  return torch::equal(found.detach().cpu().reshape({-1}), right);
}

/// Parameters by the names that golden files have; the tied one by its first.
std::map<std::string, torch::Tensor> parameters_of(const std::vector<smp::Unit>& units) {
  std::map<std::string, torch::Tensor> found;
  for (const smp::Unit& unit : units) {
    for (const auto& [name, tensor] : unit.parameters) {
      if (unit.name != "5") found[unit.name + '.' + name] = tensor;
    }
  }
  return found;
}

class Resume : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder() const { return kCheckpoints / GetParam(); }
  json expected() const { return json::parse(std::ifstream(folder() / "expected.json")); }
};

TEST_P(Resume, HasTheModelTheOptimizerAndTheUserContentThatWereSaved) {
  const json right = expected();
  const std::string kind = right.at("how").value("kind", "AdamW");
  smp::Session session = smp::Session::from_settings(kSettings);
  const std::vector<smp::Unit> units = smp::units_of(network());
  smp::DistributedModel model(session, units);
  smp::DistributedOptimizer optimizer(model, optimizer_of(units, model, kind, 7.0),
                                      smp::DistributedOptimizer::LossScale());

  const c10::IValue content = smp::resume_from_checkpoint(
      session, folder(), model, {.tag = "golden", .optimizer = &optimizer});

  const std::vector<smp::NamedTensor> state = model.local_state();
  EXPECT_EQ(state.size(), right.at("model").size());
  for (const auto& [name, value] : state) {
    const std::string first = name == "5.weight" ? "4.weight" : name;
    EXPECT_TRUE(is(value, right.at("masters").value(first, right.at("model").at(name)))) << name;
  }
  const auto parameters = parameters_of(units);
  for (const auto& [name, fields] : right.at("state").items()) {
    const auto& kept = *optimizer.wrapped().state().at(parameters.at(name).unsafeGetTensorImpl());
    if (kind == "SGD") {
      const auto& own = static_cast<const torch::optim::SGDParamState&>(kept);
      EXPECT_TRUE(is(own.momentum_buffer(), fields.at("momentum_buffer"))) << name;
    } else {
      const auto& own = static_cast<const torch::optim::AdamWParamState&>(kept);
      EXPECT_TRUE(is(own.exp_avg(), fields.at("exp_avg"))) << name;
      EXPECT_TRUE(is(own.exp_avg_sq(), fields.at("exp_avg_sq"))) << name;
      EXPECT_EQ(own.step(), fields.at("step").get<double>()) << name;
    }
  }
  for (std::size_t group = 0; group < 2; ++group) {
    const double rate = optimizer.wrapped().param_groups().at(group).options().get_lr();
    EXPECT_EQ(rate, right.at("groups").at(group).at("lr"));
  }
  EXPECT_EQ(content.toGenericDict().at("steps").toInt(), 3);
}

INSTANTIATE_TEST_SUITE_P(Forms, Resume,
                         ::testing::Values("c98c7bcb/pipeline", "ee606047/sharded", "555f3269/one",
                                           "555f3269/pipeline_optimizer", "555f3269/bf16_sharded",
                                           "555f3269/sgd", "555f3269/cpp_sharded"),
                         [](const auto& form) {
                           std::string name = form.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

TEST(ResumedProgram, TrainsOn) {
  const std::filesystem::path folder = kCheckpoints / "555f3269/pipeline_optimizer";
  smp::Session session = smp::Session::from_settings(kSettings);
  const std::vector<smp::Unit> units = smp::units_of(network());
  smp::DistributedModel model(session, units);
  smp::DistributedOptimizer optimizer(model, optimizer_of(units, model, "AdamW", 7.0),
                                      smp::DistributedOptimizer::LossScale());
  smp::resume_from_checkpoint(session, folder, model, {.tag = "golden", .optimizer = &optimizer});
  auto train = smp::step(model, [&](const smp::Microbatch& in) { return trained_loss(model, in); });
  const torch::Tensor ids = integers(0, 5, {4, 2}, 300);
  std::vector<double> losses;

  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    losses.push_back(train(ids, torch::ones({4})).mean().item<double>());
    optimizer.step();
  }

  EXPECT_LT(losses.back(), losses.front());
}

}  // namespace
}  // namespace golden
