// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/tree_maker.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "opt_ml_layout/data_channels.h"
#include "opt_ml_layout/hyperparameters.h"
#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/resource_config.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace opt_ml {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

class TreeMaker : public ::testing::Test {
 protected:
  TreeMaker() {
    write_file(folder.path() / "src/train.py", "print('hello')");
    write_file(folder.path() / "digits/part/data.bin", "1234");
    request.directory = folder.path() / "tree";
    request.code = folder.path() / "src";
    request.program = "train.py";
    request.channels = {{"train", folder.path() / "digits"}};
  }

  std::string error_of(const TreeRequest& wrong) {
    return message_of([&] { make_tree(wrong); });
  }

  TemporaryFolder folder;
  TreeRequest request;
};

TEST_F(TreeMaker, OneHostGetsTheFolderItself) {
  EXPECT_THAT(make_tree(request), ElementsAre(request.directory));

  const Layout layout(request.directory);
  EXPECT_EQ(read_resource_config(layout).current_host, "algo-1");
  EXPECT_THAT(read_data_channels(layout).sorted_names(), ElementsAre("train"));
  EXPECT_EQ(read_file(layout.channel("train") / "part/data.bin"), "1234");
  EXPECT_EQ(read_file(layout.code() / "train.py"), "print('hello')");
  EXPECT_TRUE(fs::is_directory(layout.output_data()));
  EXPECT_TRUE(fs::is_directory(layout.model()));
}

TEST_F(TreeMaker, EachOfSeveralHostsGetsItsOwnBase) {
  request.hosts = 2;

  const auto bases = make_tree(request);

  EXPECT_THAT(bases, ElementsAre(request.directory / "algo-1", request.directory / "algo-2"));
  const ResourceConfig second = read_resource_config(Layout(bases[1]));
  EXPECT_EQ(second.current_host, "algo-2");
  EXPECT_THAT(second.group_hosts("homogeneousCluster"), ElementsAre("algo-1", "algo-2"));
  EXPECT_TRUE(fs::exists(Layout(bases[1]).code() / "train.py"));
}

TEST_F(TreeMaker, HyperparametersArriveAsTheSdkSendsThem) {
  request.hyperparameters = {
      {"epochs", "3"}, {"name", "abc"}, {"version", "007"}, {"flag", "true"}};
  request.processes_per_host = 4;
  request.mp_parameters = R"({"partitions": 2})";
  make_tree(request);

  const Layout layout(request.directory);
  EXPECT_THAT(read_file(layout.hyperparameters()), HasSubstr(R"("name": "\"abc\"")"));
  const Hyperparameters read = read_hyperparameters(layout);
  EXPECT_EQ(python_repr(read.user),
            "{'mp_parameters': {'partitions': 2}, 'epochs': 3, 'name': 'abc', 'version': '007', "
            "'flag': True}");
  EXPECT_EQ(*read.framework.find("sagemaker_mpi_enabled"), Value(true));
  EXPECT_EQ(*read.framework.find("sagemaker_mpi_num_of_processes_per_host"), Value(4));
  EXPECT_EQ(*read.reserved.find("sagemaker_program"), Value("train.py"));
}

TEST_F(TreeMaker, OneHostLinksSoThatEditsCount) {
  make_tree(request);

  EXPECT_EQ(fs::read_symlink(request.directory / "code"), folder.path() / "src");
  EXPECT_EQ(fs::read_symlink(request.directory / "input/data/train"), folder.path() / "digits");
}

TEST_F(TreeMaker, SeveralHostsCopySinceTheirTreesGoIntoContainers) {
  request.hosts = 2;
  make_tree(request);

  EXPECT_FALSE(fs::is_symlink(request.directory / "algo-2/code"));
  EXPECT_TRUE(fs::is_regular_file(request.directory / "algo-2/code/train.py"));
}

TEST_F(TreeMaker, LinksAndCopiesOnRequest) {
  request.link = false;
  make_tree(request);
  EXPECT_FALSE(fs::is_symlink(request.directory / "code"));

  request.hosts = 2;
  request.link = true;
  request.replace = true;
  make_tree(request);
  EXPECT_TRUE(fs::is_symlink(request.directory / "algo-2/code"));
}

TEST_F(TreeMaker, ReplacingALinkLeavesWhatItLeadsTo) {
  make_tree(request);
  request.replace = true;
  make_tree(request);

  EXPECT_TRUE(fs::is_regular_file(folder.path() / "src/train.py"));
}

TEST_F(TreeMaker, ATreeIsReplacedOnlyOnRequest) {
  make_tree(request);
  write_file(request.directory / "output/failure", "old");
  EXPECT_THAT(error_of(request), HasSubstr("--replace"));

  request.replace = true;
  make_tree(request);

  EXPECT_FALSE(fs::exists(request.directory / "output/failure"));
}

TEST_F(TreeMaker, AFolderThatIsNoTreeIsNeverRemoved) {
  write_file(request.directory / "thesis.tex", "precious");
  request.replace = true;

  EXPECT_THAT(error_of(request), HasSubstr("holds no job tree"));
  EXPECT_EQ(read_file(request.directory / "thesis.tex"), "precious");
}

TEST_F(TreeMaker, ATreeThatCannotBeFinishedIsRemoved) {
  ASSERT_EQ(mkfifo((folder.path() / "digits/pipe").c_str(), 0600), 0);  // cannot be copied
  request.link = false;

  EXPECT_THAT(error_of(request), HasSubstr("the job tree cannot be made"));
  EXPECT_FALSE(fs::exists(request.directory));

  fs::create_directory(request.directory);
  EXPECT_THAT(error_of(request), HasSubstr("the job tree cannot be made"));
  EXPECT_TRUE(fs::is_empty(request.directory));
}

TEST_F(TreeMaker, ImpossibleRequestsAreRefusedBeforeAnythingIsWritten) {
  const auto with = [&](auto change) {
    TreeRequest wrong = request;
    change(wrong);
    return error_of(wrong);
  };

  EXPECT_THAT(with([](auto& r) { r.hosts = 0; }), HasSubstr("--hosts 0"));
  EXPECT_THAT(with([](auto& r) { r.processes_per_host = 0; }), HasSubstr("--processes 0"));
  EXPECT_THAT(with([](auto& r) { r.mp_parameters = "[1]"; }), HasSubstr("expected a JSON object"));
  EXPECT_THAT(with([](auto& r) { r.program = "other.py"; }), HasSubstr("--program other.py"));
  EXPECT_THAT(with([](auto& r) { r.code = "/nonexistent"; }), HasSubstr("no such folder"));
  EXPECT_THAT(with([](auto& r) { r.channels = {{"a/b", "/tmp"}}; }), HasSubstr("--channel a/b"));
  EXPECT_THAT(with([](auto& r) { r.channels.push_back(r.channels.front()); }),
              HasSubstr("--channel train: given twice"));
  EXPECT_THAT(with([](auto& r) { r.directory = *r.code / "tree"; }), HasSubstr("inside it"));
  EXPECT_FALSE(fs::exists(request.directory));
}

}  // namespace
}  // namespace opt_ml
