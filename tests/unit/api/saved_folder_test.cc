// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/saved_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/checkpoint/state/objects.h"
#include "smp_runtime/core/error.h"

namespace smp::api {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAreArray;
using ::testing::Values;

const std::filesystem::path kCheckpoints = SMP_GOLDEN_CHECKPOINTS;

json read_json(const std::filesystem::path& file) { return json::parse(std::ifstream(file)); }

void flatten(const json& value, std::vector<double>& numbers) {
  if (value.is_number()) return numbers.push_back(value.get<double>());
  for (const json& element : value) flatten(element, numbers);
}

/// The numbers of nested lists, in the type of `like`.
at::Tensor flat(const json& value, const at::Tensor& like) {
  std::vector<double> numbers;
  flatten(value, numbers);
  return at::tensor(numbers, at::kDouble).to(like.scalar_type());
}

std::vector<std::int64_t> shape_of(const json& value) {
  std::vector<std::int64_t> shape;
  for (const json* inner = &value; inner->is_array(); inner = &inner->at(0)) {
    shape.push_back(static_cast<std::int64_t>(inner->size()));
  }
  return shape;
}

/// Golden checkpoints by "COMMIT/FORM".
class GoldenCheckpoint : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path root() const { return kCheckpoints / GetParam(); }
};

TEST_P(GoldenCheckpoint, IsReadToTheBit) {
  const json expected = read_json(root() / "expected.json");

  const SavedFolder saved(root() / "golden_partial");

  for (const auto& [name, value] : expected.at("model").items()) {
    const std::string first = name == "5.weight" ? "4.weight" : name;  // they are tied
    const json& right = expected.at("masters").value(first, value);
    const at::Tensor found = saved.value_of(first, shape_of(right));
    EXPECT_TRUE(at::equal(found.reshape({-1}), flat(right, found))) << name;
  }
  for (const auto& [name, fields] : expected.at("state").items()) {
    const ParameterState state = state_from(saved.state().whole_state(name));
    std::vector<std::string> names;
    for (const auto& [field, value] : fields.items()) {
      if (field == "step") {
        EXPECT_EQ(state.step, value.get<double>()) << name;
      } else if (!value.is_null()) {
        const at::Tensor found = state.tensors.at(field).reshape({-1});
        EXPECT_TRUE(at::equal(found, flat(value, found))) << name << ' ' << field;
        names.push_back(field);
      }
    }
    EXPECT_EQ(state.tensors.size(), names.size());
  }
}

TEST_P(GoldenCheckpoint, HasTheSettingsOfTheGroups) {
  const json expected = read_json(root() / "expected.json");

  const SavedFolder folder(root() / "golden_partial");
  const checkpoint::SavedState& saved = folder.state();

  ASSERT_EQ(saved.groups().size(), expected.at("groups").size());
  for (std::size_t group = 0; group < saved.groups().size(); ++group) {
    const json& right = expected.at("groups").at(group);
    const GroupSettings settings = settings_of(saved.groups()[group]);
    EXPECT_EQ(settings.numbers.at("lr"), right.at("lr"));
    EXPECT_EQ(settings.numbers.at("weight_decay"), right.at("weight_decay"));
    EXPECT_THAT(saved.groups()[group].names,
                UnorderedElementsAreArray(right.at("params").get<std::vector<std::string>>()));
  }
}

TEST_P(GoldenCheckpoint, HasItsOptimizerAndUserContent) {
  const json expected = read_json(root() / "expected.json");

  const SavedFolder saved(root() / "golden_partial");

  const checkpoint::ObjectReader content(saved.user_content(), "user_content.pt");
  EXPECT_EQ(content.at("steps").integer(), 3);
  EXPECT_EQ(content.at("rate").number(), 0.5);
  EXPECT_EQ(content.at("names").elements().at(1).text(), "b");
  EXPECT_TRUE(at::equal(content.at("order").tensor(), at::tensor({2, 0, 1}, at::kLong)));
  const std::string kind = expected.at("how").value("kind", "AdamW");
  EXPECT_NO_THROW(saved.check_kind(kind));
  EXPECT_THROW(saved.check_kind(kind == "SGD" ? "RMSprop" : "SGD"), ConfigError);
  if (!expected.contains("scales")) return;
  ASSERT_TRUE(saved.state().loss_scale());
  EXPECT_EQ(saved.state().loss_scale()->scale, expected.at("scales")[0][0]);
  EXPECT_EQ(saved.state().loss_scale()->good_steps, 1);
  EXPECT_EQ(saved.state().loss_scale()->patience, 1);
}

INSTANTIATE_TEST_SUITE_P(Forms, GoldenCheckpoint,
                         Values("c98c7bcb/pipeline", "ee606047/sharded", "ee606047/fp16_optimizer",
                                "555f3269/one", "555f3269/replaced", "555f3269/pipeline",
                                "555f3269/sharded", "555f3269/persistent", "555f3269/optimizer",
                                "555f3269/pipeline_optimizer", "555f3269/fp16",
                                "555f3269/fp16_optimizer", "555f3269/bf16_sharded", "555f3269/sgd",
                                "555f3269/cpp_one", "555f3269/cpp_pipeline", "555f3269/cpp_sharded",
                                "555f3269/cpp_optimizer", "555f3269/cpp_fp16"),
                         [](const auto& form) {
                           std::string name = form.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

TEST(SavedFolder, RefusesPartsOfTensorRanks) {
  EXPECT_THAT([] { SavedFolder(kCheckpoints / "555f3269/tensor/golden_partial"); },
              ThrowsMessage<ConfigError>(HasSubstr("tensor_parallel_degree 2")));
}

}  // namespace
}  // namespace smp::api
