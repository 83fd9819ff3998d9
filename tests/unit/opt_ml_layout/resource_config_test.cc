// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/resource_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace opt_ml {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::TemporaryFolder;
using testing_support::write_file;

class ResourceConfigFile : public ::testing::Test {
 protected:
  ResourceConfig read(std::string_view text) {
    write_file(layout.resource_config(), text);
    return read_resource_config(layout);
  }
  std::string error_of(std::string_view text) {
    return message_of([&] { read(text); });
  }

  TemporaryFolder folder;
  Layout layout{folder.path()};
};

TEST_F(ResourceConfigFile, LocalModeHasNoGroups) {
  const ResourceConfig config = read(
      R"({"current_host": "algo-1-x", "hosts": ["algo-1-x"], "current_instance_type": "local_gpu"})");

  EXPECT_EQ(config.current_instance_type, "local_gpu");
  EXPECT_EQ(config.network_interface_name, "eth0");
  EXPECT_EQ(config.current_group_name, "homogeneousCluster");
  EXPECT_TRUE(config.groups.empty());
  EXPECT_TRUE(config.topology.is_null());
}

TEST_F(ResourceConfigFile, GroupsKeepTheFilesHostOrder) {
  const ResourceConfig config = read(R"({
    "current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "current_group_name": "train",
    "instance_groups": [
      {"instance_group_name": "train", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-2", "algo-1"]}
    ]})");

  EXPECT_THAT(config.group_hosts("train"), ElementsAre("algo-2", "algo-1"));
  EXPECT_TRUE(config.group_hosts("other").empty());
}

TEST_F(ResourceConfigFile, TakesTheGroupNameOfTheReferencesOwnDefaultFile) {
  EXPECT_EQ(
      read(R"({"current_host":"a","hosts":["a"],"current_instance_group":"g"})").current_group_name,
      "g");
}

TEST_F(ResourceConfigFile, SaysWhatIsWrong) {
  EXPECT_THAT(error_of(R"({"hosts": ["a"]})"),
              HasSubstr("\"current_host\" is nothing, expected text that is not empty"));
  EXPECT_THAT(error_of(R"({"current_host": "a"})"), HasSubstr("\"hosts\" is nothing"));
  EXPECT_THAT(error_of(R"({"current_host": "a", "hosts": "a"})"), HasSubstr("\"hosts\" is text"));
  EXPECT_THAT(error_of(R"({"current_host": "a", "hosts": ["a", 1]})"), HasSubstr("an integer"));
  EXPECT_THAT(error_of(R"({"current_host": "a", "hosts": ["a", "a"]})"), HasSubstr("is twice"));
  EXPECT_THAT(error_of(R"({"current_host": "algo-3", "hosts": ["algo-1","algo-2"]})"),
              HasSubstr(R"(current_host "algo-3" is not in hosts ["algo-1", "algo-2"])"));
  EXPECT_THAT(error_of("[]"), HasSubstr("is a list, expected an object"));
  EXPECT_THAT(error_of("{\n\"current_host\" \"a\"}"), HasSubstr("line 2, column 16"));
}

TEST_F(ResourceConfigFile, AMissingFileNamesTheWayOut) {
  const std::string message = message_of([&] { read_resource_config(layout); });

  EXPECT_THAT(message, HasSubstr(layout.resource_config().string() + ": no such file"));
  EXPECT_THAT(message, HasSubstr("SAGEMAKER_BASE_DIR"));
}

}  // namespace
}  // namespace opt_ml
