// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/report_page.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "entrypoint/report/report_command.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/entrypoint/report/record_text.h"

namespace entrypoint::report {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

/// What the page carries for programs.
json data_of(const std::string& page) {
  const std::string mark = R"(id="job">)";
  const std::size_t begin = page.find(mark) + mark.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
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

TEST_F(ReportOfFolder, APageThatCannotBeWrittenIsNamed) {
  write_text(records_ / "rank-0.jsonl", header_text(0));
  EXPECT_THROW(write_report({.folders = {records_}, .page = "/proc/none/report.html"}),
               smp::ConfigError);
}

}  // namespace
}  // namespace entrypoint::report
