// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/record/recorder.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace smp::record {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() : recorder_(open()) {}
  ~RecorderTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Recorder> open() {
    return std::make_unique<Recorder>(RecorderOptions{
        .rank = 3, .first_rank = 2, .host = "algo-2", .record_file = folder_ + "/rank-3.jsonl"});
  }

  void step() {
    recorder_->begin_step();
    recorder_->end_step();
    recorder_->describe_step(8, /*trained=*/true);
  }

  /// Lines of the file.
  [[nodiscard]] std::vector<json> lines() const {
    std::ifstream stream(folder_ + "/rank-3.jsonl");
    std::vector<json> all;
    for (std::string line; std::getline(stream, line);) all.push_back(json::parse(line));
    return all;
  }

  /// The sums of steps, by the names of their columns.
  [[nodiscard]] std::vector<json> sums() const {
    std::vector<json> found;
    json columns;
    for (const json& line : lines()) {
      if (line.contains("columns")) columns = line["columns"];
      if (!line.is_array()) continue;
      json named;
      for (std::size_t i = 0; i < line.size(); ++i)
        named[columns.at(i).get<std::string>()] = line[i];
      found.push_back(named);
    }
    return found;
  }

  const std::string folder_ = ::testing::TempDir() + fmt::format("records-{}", ::getpid());
  std::unique_ptr<Recorder> recorder_;
};

TEST_F(RecorderTest, SaysWhereAStepsTimeWent) {
  recorder_->begin_step();
  const auto begin = Clock::now();
  recorder_->add(Activity::kForward, "layer", begin, begin + milliseconds(5), 0);
  recorder_->add(Activity::kBackward, "layer", begin, begin + milliseconds(7), 0);
  recorder_->sent(1, 100);
  recorder_->sent(std::vector{2, 3, 4}, 10);
  recorder_->end_step();
  recorder_->describe_step(8, true);
  std::this_thread::sleep_for(milliseconds(4));
  recorder_->begin_optimizer();
  recorder_->begin_optimizer();  // as of an optimizer within another
  std::this_thread::sleep_for(milliseconds(3));
  recorder_->end_optimizer();
  recorder_->end_optimizer();
  std::this_thread::sleep_for(milliseconds(6));
  step();
  recorder_->close();

  const auto all = sums();
  ASSERT_EQ(all.size(), 2U);
  const json& first = all.front();
  EXPECT_EQ(first["step"], 1);
  EXPECT_EQ(first["samples"], 8);
  EXPECT_EQ(first["trained"], 1);
  EXPECT_EQ(first["forward_us"], 5000);
  EXPECT_EQ(first["backward_us"], 7000);
  EXPECT_EQ(first["messages"], 3) << "none to itself";
  EXPECT_EQ(first["bytes"], 120);
  EXPECT_GE(first["optimizer_us"], 3000);
  EXPECT_GE(first["data_us"], 10'000);
  EXPECT_GE(first["total_us"].get<int>(),
            first["optimizer_us"].get<int>() + first["data_us"].get<int>());
}

TEST_F(RecorderTest, WhatBelongsToAStepBehindTheEngineIsNoTimeForData) {
  recorder_->begin_step();
  recorder_->end_step();
  {
    const Waited waited(recorder_.get(), Activity::kReduce, [] { return std::string("sum"); });
    std::this_thread::sleep_for(milliseconds(500));
  }
  recorder_->describe_step(1, true);
  recorder_->begin_step();
  recorder_->end_step();
  recorder_->close();

  const json first = sums().front();
  EXPECT_GE(first["reduce_us"], 500'000);
  EXPECT_GE(first["step_us"], 500'000);
  EXPECT_LT(first["data_us"], 500'000);
}

TEST_F(RecorderTest, KeepsSpansOfFewStepsAndAllTraffic) {
  for (int number = 0; number < 30; ++number) {
    recorder_->begin_step();
    const auto now = Clock::now();
    recorder_->add(Activity::kForward, "a \"name\"", now, now, 2);
    recorder_->sent(0, 1);
    recorder_->end_step();
  }
  recorder_->close();

  std::vector<int> steps;
  json traffic;
  for (const json& line : lines()) {
    if (line.contains("spans")) {
      steps.push_back(line["spans"]["step"]);
      EXPECT_EQ(line["spans"]["rows"][0][4], "a \"name\"");
    }
    if (line.contains("traffic")) traffic = line["traffic"];
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(1, 2, 5, 10, 20));
  EXPECT_EQ(traffic, json::parse("[[0,30,30]]"));
}

TEST_F(RecorderTest, ARecordGrowsByTheLogarithm) {
  constexpr int kSteps = 200'000;
  for (int number = 0; number < kSteps; ++number) step();
  recorder_->close();

  const auto all = sums();
  EXPECT_LT(all.size(), 70'000U);
  std::int64_t steps = 0;
  for (const json& line : all) {
    EXPECT_EQ(line["step"], steps + 1);
    steps += line["steps"].get<std::int64_t>();
  }
  EXPECT_EQ(steps, kSteps);
}

TEST_F(RecorderTest, SurvivesTheRank) {
  for (int number = 0; number < 3; ++number) step();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  step();  // here the third one is added, and all that are a second old are written
  // The rank is gone now: nothing of it runs any more.
  EXPECT_EQ(sums().size(), 3U);
}

TEST_F(RecorderTest, AForkWritesNothing) {
  step();
  const pid_t child = ::fork();
  if (child == 0) {
    recorder_.reset();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(sums().size(), 0U);
  recorder_->close();
  EXPECT_EQ(sums().size(), 1U);
}

TEST(Recorder, WithoutFilesNamesAreNotAskedFor) {
  Recorder recorder({});
  recorder.begin_step();
  EXPECT_FALSE(recorder.draws());
  EXPECT_FALSE(recorder.records());
  recorder.end_step();
}

}  // namespace
}  // namespace smp::record
