// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/arguments.h"

#include <cstdlib>
#include <iterator>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/config/shell_text.h"
#include "opt_ml_layout/hyperparameters.h"
#include "opt_ml_layout/json_document.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing_support::message_of;

opt_ml::Value decoded(const char* json) {
  return opt_ml::split_hyperparameters(opt_ml::parse_json(json)).user;
}

template <typename... Options>
std::vector<std::string> words_of(const opt_ml::Value& hyperparameters, Options... options) {
  return user_arguments(hyperparameters, options...).words;
}

TEST(Arguments, FollowTheMeasuredExample) {
  EXPECT_THAT(
      words_of(decoded(
          R"({"batch-size":"256","d":"{\"b\":true}","lst":"[1, \"x\"]","nul":"null","e":"1E400",
              "s":"\"a b\""})")),
      ElementsAre("--batch-size", "256", "-d", "b=True", "-e", "inf", "--lst", "[1, 'x']", "--nul",
                  "", "-s", "a b"));
}

TEST(Arguments, ObjectsAreSortedPairsWithPythonTexts) {
  EXPECT_THAT(words_of(decoded(R"({"o": {"b": true, "a": [1, 2], "c": null,
                                               "d": {"z": 1, "a": "x"}}})")),
              ElementsAre("-o", "a=[1, 2],b=True,c=None,d={'z': 1, 'a': 'x'}"));
}

TEST(Arguments, AreSortedByCodePoint) {
  EXPECT_THAT(words_of(decoded(R"({"a": 1, "_": 2, "Z": 3, "ж": 4, "": "5", "--x": 6})")),
              ElementsAre("", "5", "----x", "6", "-Z", "3", "-_", "2", "-a", "1", "-ж", "4"));
}

TEST(Arguments, MayBeJsonInFileOrder) {
  EXPECT_THAT(words_of(decoded(R"({"b": [1, "x"], "a": true, "n": null})"), ArgumentStyle::kJson,
                       ArgumentOrder::kFile),
              ElementsAre("-b", "[1,\"x\"]", "-a", "true", "-n", ""));
}

TEST(Arguments, MayBeOverridesOfOneWord) {
  EXPECT_THAT(words_of(decoded(R"({"trainer": "gpu", "lr": 0.01, "+model.sizes": [1, "x"],
                                   "resume": null, "amp": true, "name": "a b"})"),
                       ArgumentStyle::kOverrides, ArgumentOrder::kFile),
              ElementsAre("trainer=gpu", "lr=0.01", "+model.sizes=[1,\"x\"]", "resume=null",
                          "amp=true", "name=a b"));
}

TEST(Arguments, WhatNoProgramCanGetIsRefused) {
  EXPECT_THAT(message_of([] { user_arguments(decoded(R"({"k": "\"a\\u0000b\""})")); }),
              HasSubstr("NUL"));
  const opt_ml::Value long_name{opt_ml::Value::Object{{std::string(70'000, 'n'), 1}}};
  EXPECT_THAT(message_of([&] { user_arguments(long_name); }),
              HasSubstr("its name has 70000 bytes; shorten it to 65536"));
}

TEST(Arguments, WhatOneArgumentCannotHoldIsLeftOut) {
  const auto split = [](std::size_t bytes, ArgumentStyle style) {
    return user_arguments(
        opt_ml::Value{opt_ml::Value::Object{{"a", 1}, {"k", std::string(bytes, 'x')}, {"z", 2}}},
        style);
  };

  for (const ArgumentStyle style : {ArgumentStyle::kPython, ArgumentStyle::kJson}) {
    EXPECT_THAT(split(131071, style).left_out, IsEmpty());
    EXPECT_THAT(split(131071, style).words, SizeIs(6));
    EXPECT_THAT(split(131072, style).left_out, ElementsAre("k"));
    EXPECT_THAT(split(131072, style).words, ElementsAre("-a", "1", "-z", "2"));
  }
  EXPECT_THAT(split(131069, ArgumentStyle::kOverrides).left_out, IsEmpty());  // "k=…"
  EXPECT_THAT(split(131070, ArgumentStyle::kOverrides).words, ElementsAre("a=1", "z=2"));
}

TEST(Arguments, TheLongestAreLeftOutUntilAllFit) {
  opt_ml::Value::Object object{{"small", 1}};
  for (const std::size_t bytes : {100'000, 90'000, 120'000, 95'000, 110'000, 80'000}) {
    object.push_back({"x" + std::to_string(bytes), std::string(bytes, 'x')});
  }

  const UserArguments arguments = user_arguments(opt_ml::Value{object});

  EXPECT_THAT(arguments.left_out, ElementsAre("x120000"));
  EXPECT_THAT(arguments.words, SizeIs(12));
}

TEST(ShellText, QuotesAsPythonDoes) {
  EXPECT_EQ(shell_quote("a-b_c/d.e:f=g,h@i%j+k"), "a-b_c/d.e:f=g,h@i%j+k");
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("it's $HOME"), "'it'\"'\"'s $HOME'");
  EXPECT_EQ(shell_quote("ж"), "'ж'");
}

TEST(ShellText, SplitsAsAShellDoes) {
  const smp::Variables variables{{"HOME", "/root"}, {"TWO", "a b"}};
  const auto split = [&](const char* text) { return shell_split(text, variables, "here"); };

  EXPECT_THAT(split("  a  b\tc\n"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split("-x A='b  c' '' \"\""), ElementsAre("-x", "A=b  c", "", ""));
  EXPECT_THAT(split("\"$HOME/x\" ${HOME} '$HOME' \\$HOME $NONE-"),
              ElementsAre("/root/x", "/root", "$HOME", "$HOME", "-"));
  EXPECT_THAT(split("$TWO $ $1 ${ \"a\\\"b\\c\""), ElementsAre("a b", "$", "$1", "${", "a\"b\\c"));
  EXPECT_THAT(message_of([&] { split("a 'b"); }), HasSubstr("here: the quote ' at character 3"));
  EXPECT_THAT(message_of([&] { split("\"b"); }), HasSubstr("does not close"));
}

TEST(ShellText, ANulIsRefusedWhereverItStands) {
  using std::string_literals::operator""s;

  for (const std::string& text : {"a\0b"s, "a '\0'"s, "\0"s, "\"$A\0_B\""s}) {
    EXPECT_THAT(message_of([&] { shell_split(text, {}, "here"); }), HasSubstr("is a NUL")) << text;
  }
}

TEST(ShellText, SplitUndoesJoin) {
  const std::vector<std::string> words{"", "a b", "it's", "\"", "$HOME", "\\", "*", "\n", "ж"};

  EXPECT_EQ(shell_split(shell_join(words), {{"HOME", "x"}}, "here"), words);
}

// Random words, quoted for a real shell and for ourselves: both must give the words back.
TEST(ShellText, ARealShellReadsWhatWeQuote) {
  std::mt19937 random(20261121);
  const std::string_view pieces[] = {"a",  " ", "'", "\"", "\\", "$HOME", "`id`", "*",
                                     "\n", "ж", "!", "#",  "~",  ";",     "\t"};
  std::vector<std::string> words;
  for (int i = 0; i < 500; ++i) {
    std::string word;
    for (std::size_t left = random() % 8; left > 0; --left)
      word += pieces[random() % std::size(pieces)];
    words.push_back(std::move(word));
  }
  const testing_support::TemporaryFolder folder;
  const auto script = folder.path() / "print.sh";
  const auto printed = folder.path() / "printed";
  testing_support::write_file(script, "printf '%s\\0' " + shell_join(words) + " > \"$1\"\n");

  const std::string command = "/bin/sh " + script.string() + " " + printed.string();
  ASSERT_EQ(std::system(command.c_str()), 0);

  std::string expected;
  for (const std::string& word : words) expected += word + '\0';
  EXPECT_EQ(testing_support::read_file(printed), expected);
  EXPECT_EQ(shell_split(shell_join(words), {{"HOME", "x"}}, "here"), words);
}

}  // namespace
}  // namespace entrypoint
