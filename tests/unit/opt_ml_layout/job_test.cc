// SPDX-License-Identifier: Apache-2.0
#include "smp/job.h"

#include <cmath>
#include <string>

#include "smp/error.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "opt_ml_layout/tree_maker.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace smp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;
using testing_support::TemporaryFolder;
using testing_support::write_file;

/// The tree that `train --make-tree` makes, which is what the service would bring.
class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    write_file(folder_.path() / "data/digits.csv", "0,1\n");
    opt_ml::make_tree({.directory = base_,
                       .hyperparameters = {{"epochs", "3"},
                                           {"lr", "1e-3"},
                                           {"resume", "true"},
                                           {"name", "a b"},
                                           {"sizes", "[1,\"x\"]"},
                                           {"limit", "Infinity"},
                                           {"large", "18446744073709551616"},
                                           {"nothing", "null"}},
                       .channels = {{"training", folder_.path() / "data"}},
                       .link = false});
  }

  const TemporaryFolder folder_;
  const std::filesystem::path base_ = folder_.path() / "job";
};

TEST_F(JobTest, ReadsHyperparametersByTheirKind) {
  const Job job = Job::from_folder(base_);

  EXPECT_EQ(job.integer("epochs"), 3);
  EXPECT_EQ(job.number("lr"), 1e-3);
  EXPECT_EQ(job.number("epochs"), 3.0);
  EXPECT_EQ(job.number("large"), 18446744073709551616.0);
  EXPECT_TRUE(std::isinf(job.number("limit")));
  EXPECT_TRUE(job.flag("resume"));
  EXPECT_EQ(job.text("name"), "a b");
  EXPECT_EQ(job.text("sizes"), "[1,\"x\"]");
  EXPECT_EQ(job.text("epochs"), "3");
}

TEST_F(JobTest, FallsBackWhereOneIsAbsentOrNull) {
  const Job job = Job::from_folder(base_);

  EXPECT_EQ(job.integer("epochs", 7), 3);
  EXPECT_EQ(job.integer("steps", 7), 7);
  EXPECT_EQ(job.number("nothing", 0.5), 0.5);
  EXPECT_FALSE(job.flag("verbose", false));
  EXPECT_EQ(job.text("title", ""), "");
  EXPECT_FALSE(job.has("nothing"));
  EXPECT_TRUE(job.has("epochs"));
}

TEST_F(JobTest, NamesWhatIsMissingOrOfAnotherKind) {
  const Job job = Job::from_folder(base_);

  EXPECT_THAT(message_of([&] { return job.integer("epoch"); }),
              HasSubstr("\"epoch\" is not set in " + base_.string()));
  EXPECT_THAT(message_of([&] { return job.integer("epoch"); }), HasSubstr("did you mean epochs?"));
  EXPECT_THAT(message_of([&] { return job.integer("lr", 1); }),
              HasSubstr("\"lr\" is 0.001, expected a whole number"));
  EXPECT_THAT(message_of([&] { return job.integer("large"); }),
              HasSubstr("expected a whole number"));
  EXPECT_THAT(message_of([&] { return job.number("name"); }),
              HasSubstr("\"name\" is \"a b\", expected a number"));
  EXPECT_THAT(message_of([&] { return job.flag("epochs"); }), HasSubstr("expected true or false"));
  EXPECT_THROW(static_cast<void>(job.text("absent")), ConfigError);
}

TEST_F(JobTest, HidesWhatTheLauncherConsumes) {
  EXPECT_THAT(Job::from_folder(base_).hyperparameters(),
              ElementsAre("epochs", "large", "limit", "lr", "name", "nothing", "resume", "sizes"));
}

TEST_F(JobTest, KnowsChannelsAndFolders) {
  const Job job = Job::from_folder(base_);

  EXPECT_THAT(job.channels(), ElementsAre("training"));
  EXPECT_TRUE(std::filesystem::exists(job.channel("training") / "digits.csv"));
  EXPECT_EQ(job.model_folder(), base_ / "model");
  EXPECT_EQ(job.checkpoint_folder(), base_ / "checkpoints");
  EXPECT_EQ(job.output_folder(), base_ / "output/data");
  EXPECT_THAT(message_of([&] { return job.channel("train"); }),
              HasSubstr("did you mean training?"));
  EXPECT_THAT(message_of([&] { return job.channel("zzz"); }),
              HasSubstr("the job's channels are training"));
}

TEST_F(JobTest, FindsItsTreeByTheEnvironment) {
  const TemporaryFolder empty;

  setenv("SM_INPUT_DIR", (base_ / "input").c_str(), 1);
  EXPECT_EQ(Job::from_environment().integer("epochs"), 3);
  setenv("SAGEMAKER_BASE_DIR", empty.path().c_str(), 1);
  EXPECT_THAT(Job::from_environment().hyperparameters(), IsEmpty());
  unsetenv("SAGEMAKER_BASE_DIR");
  unsetenv("SM_INPUT_DIR");

  EXPECT_THAT(message_of([&] { return Job::from_folder(empty.path()).channel("train"); }),
              HasSubstr("the job has no channels"));
}

TEST_F(JobTest, RefusesATreeThatIsNoJob) {
  write_file(base_ / "input/config/hyperparameters.json", "[1]");

  EXPECT_THAT(message_of([&] { return Job::from_folder(base_); }),
              HasSubstr("hyperparameters.json"));
}

}  // namespace
}  // namespace smp
