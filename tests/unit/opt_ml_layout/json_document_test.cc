// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/json_document.h"

#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "opt_ml_layout/python_text.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace opt_ml {
namespace {

using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::TemporaryFolder;
using testing_support::write_file;

std::string error_of(std::string_view text) {
  return message_of([&] { parse_json(text); });
}

TEST(JsonDocument, KeepsIntegersOfAnySize) {
  EXPECT_EQ(to_json(parse_json("123456789012345678901234567890")),
            "123456789012345678901234567890");
  EXPECT_EQ(parse_json("-0"), Value(0));
  EXPECT_EQ(parse_json("9223372036854775807").integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_json("9223372036854775808").integer(), std::nullopt);
}

TEST(JsonDocument, ReadsWhatPythonAddsToJson) {
  EXPECT_TRUE(std::isnan(*parse_json("NaN").real()));
  EXPECT_EQ(*parse_json("-Infinity").real(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(*parse_json("1E400").real(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(*parse_json("-1E400").real(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(*parse_json("1e-400").real(), 0.0);
  EXPECT_TRUE(std::signbit(*parse_json("-0.0").real()));
}

TEST(JsonDocument, TheLastOfEqualKeysWinsAtTheFirstOnesPlace) {
  const Value value = parse_json(R"({"a": 1, "b": 2, "a": 3})");

  EXPECT_EQ(to_json_indented(value, 0), "{\n\"a\": 3,\n\"b\": 2\n}");
}

TEST(JsonDocument, RefusesWhatPythonRefuses) {
  for (const char* text : {"",
                           " ",
                           "01",
                           "+1",
                           ".5",
                           "1.",
                           "1.e5",
                           "1e",
                           "-",
                           "--1",
                           "True",
                           "None",
                           "nan",
                           "'x'",
                           "[1,]",
                           "{\"a\":1,}",
                           "{a:1}",
                           "{\"a\" 1}",
                           "[1 2]",
                           "1 2",
                           "nul",
                           "\"",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\\u12",
                           "\"tab\there\"",
                           "[",
                           "{",
                           "\xEF\xBB\xBF{}",
                           "\"\xFF\"",
                           "\xC3",
                           "\"\xED\xA0\x80\"",
                           "-NaN",
                           "1_000",
                           "0x10"}) {
    EXPECT_FALSE(try_parse_json(text)) << text;
  }
}

TEST(JsonDocument, SaysWhereAndWhatWasExpected) {
  EXPECT_EQ(error_of("{\n  \"a\": 1,\n  \"b\": 2 3\n}"),
            "line 3, column 10: found '3', expected ',' or '}' after the value");
  EXPECT_EQ(error_of("{\"ключ\": tru}"), "line 1, column 10: found 't', expected a JSON value");
  EXPECT_EQ(error_of("[1"),
            "line 1, column 3: found the end of the text, expected ',' or ']' after the value");
  EXPECT_EQ(error_of("{\"a\": \"no end"),
            "line 1, column 7: text in double quotes that does not end");
  EXPECT_THAT(error_of("\"\xFF\""), HasSubstr("byte 0xFF, which is not UTF-8"));
  EXPECT_THAT(error_of("\xEF\xBB\xBF{}"), HasSubstr("byte order mark"));
}

TEST(JsonDocument, LimitsNestingAndDigitsAsPythonDoes) {
  EXPECT_TRUE(try_parse_json(std::string(900, '[') + std::string(900, ']')));
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("nested deeper than 1000"));
  EXPECT_TRUE(try_parse_json(std::string(4300, '7')));
  EXPECT_THAT(error_of(std::string(5000, '7')), HasSubstr("more than 4300 digits"));
}

TEST(JsonDocument, JoinsSurrogatePairsAndKeepsLoneOnes) {
  EXPECT_EQ(*parse_json(R"("\ud83d\ude00")").text(), "\xF0\x9F\x98\x80");
  EXPECT_EQ(to_json(parse_json(R"("\ud83d!")")), R"("\ud83d!")");
  EXPECT_EQ(to_json(parse_json(R"("\ud83d\u0041")")), R"("\ud83dA")");
}

TEST(JsonDocument, ErrorsOfAFileNameTheFile) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "hyperparameters.json";
  write_file(file, "{\"a\": }");

  const std::string message = message_of([&] { read_json_file(file); });

  EXPECT_THAT(message, HasSubstr(file.string() + ": not valid JSON: line 1, column 7: found '}'"));
}

TEST(JsonDocument, AFileThatIsNotThereIsNoError) {
  EXPECT_EQ(read_json_file("/nonexistent/file.json"), std::nullopt);
  const TemporaryFolder folder;
  EXPECT_THROW(read_json_file(folder.path()), smp::HostError);
}

}  // namespace
}  // namespace opt_ml
