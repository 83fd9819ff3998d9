// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "opt_ml_layout/outputs.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace opt_ml {
namespace {

using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::TemporaryFolder;
using testing_support::write_file;

class TensorBoardConfigTest : public ::testing::Test {
 protected:
  std::filesystem::path folder_of(const std::string& text) {
    write_file(layout_.tensorboard_config(), text);
    return read_tensorboard_folder(layout_);
  }

  const TemporaryFolder folder_;
  const Layout layout_{folder_.path()};
};

TEST_F(TensorBoardConfigTest, NamesTheFolder) {
  EXPECT_EQ(folder_of(R"({"LocalPath": "/opt/ml/output/tensorboard", "S3OutputPath": "s3://b"})"),
            "/opt/ml/output/tensorboard");
}

TEST_F(TensorBoardConfigTest, WithoutAWishThereIsNone) {
  EXPECT_EQ(read_tensorboard_folder(layout_), "");
  EXPECT_EQ(folder_of("null"), "");
  EXPECT_EQ(folder_of("{}"), "");
  EXPECT_EQ(folder_of(R"({"LocalPath": null})"), "");
}

TEST_F(TensorBoardConfigTest, SaysWhatItFoundInstead) {
  EXPECT_THAT(message_of([&] { folder_of(R"({"LocalPath": 3})"); }),
              HasSubstr("tensorboardoutputconfig.json: found an integer, expected an object whose "
                        "LocalPath is a text"));
  EXPECT_THAT(message_of([&] { folder_of("[]"); }), HasSubstr("found a list"));
}

class CheckpointConfigTest : public ::testing::Test {
 protected:
  CheckpointPlace place_of(const std::string& text) {
    write_file(layout_.checkpoint_config(), text);
    return read_checkpoint_place(layout_);
  }

  const TemporaryFolder folder_;
  const Layout layout_{folder_.path()};
};

TEST_F(CheckpointConfigTest, NamesFolderAndAddress) {
  const CheckpointPlace place = place_of(R"({"LocalPath": "/opt/ml/c", "S3Uri": "s3://b/k"})");

  EXPECT_EQ(place.folder, "/opt/ml/c");
  EXPECT_EQ(place.address, "s3://b/k");
}

TEST_F(CheckpointConfigTest, WithoutAFolderItIsTheTrees) {
  EXPECT_EQ(read_checkpoint_place(layout_).folder, layout_.checkpoints());
  EXPECT_EQ(read_checkpoint_place(layout_).address, "");
  EXPECT_EQ(place_of(R"({"S3Uri": "s3://b/k"})").folder, layout_.checkpoints());
}

TEST_F(CheckpointConfigTest, SaysWhatItFoundInstead) {
  EXPECT_THAT(message_of([&] { place_of(R"({"S3Uri": []})"); }),
              HasSubstr("checkpointconfig.json: found a list, expected an object whose S3Uri is a "
                        "text"));
}

}  // namespace
}  // namespace opt_ml
