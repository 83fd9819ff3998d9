// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/report_page.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/entrypoint/report/record_text.h"

namespace entrypoint::report {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

/// The page's data for programs.
json data_of(const std::string& page) {
  const std::string mark = R"(id="job">)";
  const std::size_t begin = page.find(mark) + mark.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

TEST(ReportPage, MarkupInTextsStaysText) {
  const json report{{"name", "</script><script>alert(1)</script> <b> \" & ü"}};
  const std::string page = report_page(report);
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_EQ(data_of(page), report);
}

TEST(ReportPage, AsksForNothingFromAnywhere) {
  const std::string page = report_page(json::object());
  EXPECT_FALSE(std::regex_search(page, std::regex(R"((src|href)="(?!data:))")));
  EXPECT_FALSE(std::regex_search(page, std::regex(R"(\b(fetch|XMLHttpRequest|import)\()")));
}

class ReportOfFolder : public ::testing::Test {
 protected:
  ReportOfFolder() { std::filesystem::create_directories(records_); }
  ~ReportOfFolder() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      ::testing::TempDir() + fmt::format("report-page-{}", ::getpid());
  const std::filesystem::path records_ = folder_ / "output" / "data" / "records";
};

TEST_F(ReportOfFolder, IsWrittenWholeAndCarriesItsData) {
  std::string text = header_text(0);
  for (int step = 1; step <= 20; ++step) text += step_text(step, 100'000, 95'000);
  write_text(records_ / "rank-0.jsonl", text);
  const auto page = folder_ / "new" / "report.html";

  const std::string verdict = write_report({.folders = {find_records(folder_)}, .page = page});

  EXPECT_THAT(verdict, HasSubstr("compute 95 % of the time"));
  std::ifstream stream(page);
  const json data = data_of({std::istreambuf_iterator<char>(stream), {}});
  EXPECT_EQ(data["format"], 1);
  EXPECT_EQ(data["card"]["steps"], 20);
  EXPECT_EQ(data["ranks"][0]["shares"]["compute"], 0.95);
  EXPECT_EQ(data["series"][0]["points"].size(), 20U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(page.parent_path()), {}), 1);
}

TEST_F(ReportOfFolder, WhatAScriptTellsCountsWhereNoRankRecordedSteps) {
  std::string log = "{\"format\":1}\n";
  for (int step = 1; step <= 20; ++step) {
    log += fmt::format("[{},{},{}]\n", 1000 + 0.25 * step, step, 2.0 / step);
  }
  write_text(records_ / "log-algo-1.jsonl", log);
  const auto page = folder_ / "report.html";

  const std::string verdict = write_report({.folders = {records_}, .page = page});

  EXPECT_THAT(verdict, HasSubstr("algo-1's output tells of 20 steps, of 25"));
  const json data = data_of(text_of(page));
  EXPECT_EQ(data["losses"].size(), 20);
  EXPECT_EQ(data["series"][0]["name"], "algo-1's output");
  EXPECT_EQ(data["series"][0]["points"].size(), 19);

  std::string record = header_text(0);
  for (int step = 1; step <= 20; ++step) record += step_text(step, 100'000, 95'000);
  write_text(records_ / "rank-0.jsonl", record);
  EXPECT_THAT(write_report({.folders = {records_}, .page = page}), HasSubstr("Nothing holds"));
}

TEST_F(ReportOfFolder, GroupsOfARankAreAddedUp) {
  for (const int group : {0, 1}) {
    write_text(records_ / fmt::format("smddp-1-{}.jsonl", group),
               "{\"format\":1,\"rank\":1,\"host\":\"algo-1\"}\n{\"traffic\":[[0,2,100]]}\n");
  }
  const auto page = folder_ / "report.html";

  EXPECT_EQ(write_report({.folders = {records_}, .page = page}), "");

  EXPECT_EQ(data_of(text_of(page))["traffic"], json::parse("[[1, 0, 200, 4, false]]"));
}

TEST_F(ReportOfFolder, FilesOfAnEarlierJobAreLeftOut) {
  write_text(records_ / "rank-0.jsonl", header_text(0));
  write_text(records_ / "rank-1.jsonl", header_text(1));
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(records_ / "rank-1.jsonl", now - std::chrono::hours(1));
  const auto page = folder_ / "report.html";

  write_report({.folders = {records_}, .page = page, .since = now - std::chrono::minutes(1)});

  EXPECT_EQ(data_of(text_of(page))["card"]["ranks"], 1);
}

TEST_F(ReportOfFolder, EveryTextIsMasked) {
  const std::string secret = "k3y\"<";
  write_text(records_ / "rank-0.jsonl",
             header_text(0) + R"({"event": {"time": 1, "kind": "resumed", "text": "k3y\"<"}})");
  const auto page = folder_ / "report.html";

  write_report({.folders = {records_},
                .page = page,
                .end = JobEnd{.exit_code = 1, .failure = secret, .last_lines = {secret}},
                .mask = [&](std::string text) {
                  const std::size_t at = text.find(secret);
                  return at == text.npos ? text : text.replace(at, secret.size(), "***");
                }});

  EXPECT_THAT(text_of(page), Not(HasSubstr("k3y")));
  EXPECT_EQ(data_of(text_of(page))["end"],
            json::parse(R"({"exit_code": 1, "failure": "***", "last_lines": ["***"]})"));
}

TEST_F(ReportOfFolder, APageThatCannotBeWrittenIsNamed) {
  write_text(records_ / "rank-0.jsonl", header_text(0));
  EXPECT_THROW(write_report({.folders = {records_}, .page = "/proc/none/report.html"}),
               smp::HostError);
}

}  // namespace
}  // namespace entrypoint::report
