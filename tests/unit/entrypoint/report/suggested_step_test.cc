// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/suggested_step.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/report/job_numbers.h"
#include "entrypoint/report/job_record.h"

namespace entrypoint::report {
namespace {

using nlohmann::json;

const json kSettings = {{"microbatches", 4}, {"ddp", true}};
constexpr const char* kSuggestion = R"({
  "settings": {"microbatches": 4},
  "predicted": {"step_seconds": 0.02, "memory_bytes": 5000, "memory": {"buffers": 1000},
                "times": {"computing": 0.01, "recomputing": 0.002, "waiting": 0.004},
                "sent_bytes": 700},
  "candidates": [{"memory_bytes": 5000, "samples_per_second": 9, "fits": true,
                  "mp_parameters": {"microbatches": 4}},
                 {"memory_bytes": 9000, "samples_per_second": 3, "fits": false,
                  "mp_parameters": {}}]})";

class SuggestedSteps : public testing::Test {
 protected:
  SuggestedSteps()
      : file_(std::filesystem::path(testing::TempDir()) /
              (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) +
               ".json")) {}
  ~SuggestedSteps() override { std::filesystem::remove(file_); }

  auto read(const std::string& text, const json& settings = kSettings) {
    std::ofstream(file_) << text;
    return read_suggested_step(file_, settings);
  }

  std::string problem(const std::string& text, const json& settings = kSettings) {
    const auto found = read(text, settings);
    return std::holds_alternative<std::string>(found) ? std::get<std::string>(found) : "";
  }

  const std::filesystem::path file_;
};

TEST_F(SuggestedSteps, StandBesideTheMeasuredOnes) {
  JobRecord job;
  job.suggested = std::get<SuggestedStep>(read(kSuggestion));
  RankRecord rank{.host = "algo-1"};
  rank.memory = {{.kinds = {{"parameters", 3000}, {"peak_live", 500}, {"heap", 7000}}}};
  job.ranks = {rank};
  JobNumbers numbers;
  numbers.ranks = {{.computed = 0.5, .waited = 0.1, .data = 0.2, .step_ms = 40, .bytes = 800}};

  const json found = suggested_json(job, numbers);

  EXPECT_EQ(found["predicted"], json::parse(R"({"step_ms": 20.0, "computed": 0.6, "waited": 0.2,
                                                "memory_bytes": 4000, "sent_bytes": 700})"));
  EXPECT_EQ(found["measured"], json::parse(R"({"step_ms": 32.0, "computed": 0.625,
                                               "waited": 0.125, "memory_bytes": 3500,
                                               "sent_bytes": 800})"));
  EXPECT_EQ(found["candidates"][1], json::parse(R"([9000, 3.0, false, "{}"])"));
}

TEST_F(SuggestedSteps, OfOtherSettingsAreNone) {
  EXPECT_THAT(problem(kSuggestion, {{"microbatches", 2}}),
              testing::HasSubstr("\"microbatches\" differs"));
  EXPECT_THAT(problem(kSuggestion, json()), testing::HasSubstr("\"microbatches\" differs"));
}

TEST_F(SuggestedSteps, WhatIsNoSuggestionIsAProblemAndNoError) {
  for (const char* text : {"", "{}", "[1]", R"({"settings": {}, "predicted": {}})",
                           R"({"settings": {}, "predicted": {"step_seconds": -1, "times": {}}})"}) {
    EXPECT_THAT(problem(text), testing::HasSubstr("is nothing that train --suggest --write left"))
        << text;
  }
}

}  // namespace
}  // namespace entrypoint::report
