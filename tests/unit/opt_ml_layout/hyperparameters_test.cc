// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/hyperparameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace opt_ml {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::message_of;
using testing_support::TemporaryFolder;
using testing_support::write_file;

TEST(Hyperparameters, DecodeTextThatIsJson) {
  struct Case {
    const char* raw;
    const char* json;
  };
  for (const auto& [raw, json] :
       {Case{"256", "256"}, Case{"1e-5", "1e-05"}, Case{"true", "true"}, Case{"null", "null"},
        Case{" [1, \"x\"] ", "[1,\"x\"]"}, Case{"\"0123\"", "\"0123\""}, Case{"1E5", "100000.0"},
        Case{"-0", "0"}, Case{"NaN", "NaN"}, Case{"1E400", "Infinity"}, Case{"007", "\"007\""},
        Case{"True", "\"True\""}, Case{"1_000", "\"1_000\""}, Case{".5", "\".5\""},
        Case{"", "\"\""}, Case{"{'a': 1}", "\"{'a': 1}\""}}) {
    EXPECT_EQ(to_json(decode_hyperparameter(raw)), json) << raw;
  }
  EXPECT_EQ(decode_hyperparameter(Value(3)), Value(3));
}

TEST(Hyperparameters, SplitByNameInFileOrder) {
  const Hyperparameters split = split_hyperparameters(parse_json(
      R"({"z": "1", "sagemaker_program": "\"t.py\"", "a": "x", "sagemaker_mpi_enabled": "true",
          "_tuning_objective_metric": "loss", "sagemakerish": "2"})"));

  EXPECT_EQ(python_repr(split.user), "{'z': 1, 'a': 'x', 'sagemakerish': 2}");
  EXPECT_EQ(python_repr(split.framework), "{'sagemaker_mpi_enabled': True}");
  EXPECT_EQ(python_repr(split.reserved),
            "{'sagemaker_program': 't.py', '_tuning_objective_metric': 'loss'}");
}

TEST(Hyperparameters, SwitchesAreReadAsPeopleWriteThem) {
  for (const Value& on :
       {Value(true), Value("True"), Value("yes"), Value("1"), Value(1), Value("ON")}) {
    EXPECT_EQ(parse_switch(on), true) << python_repr(on);
  }
  for (const Value& off :
       {Value(false), Value("False"), Value("no"), Value("0"), Value(0), Value(""), Value()}) {
    EXPECT_EQ(parse_switch(off), false) << python_repr(off);
  }
  EXPECT_EQ(parse_switch("maybe"), std::nullopt);
  EXPECT_EQ(parse_switch(Value::List{}), std::nullopt);
}

TEST(Hyperparameters, AMissingFileMeansNone) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_hyperparameters(Layout(folder.path())).user, Value(Value::Object{}));
}

TEST(Hyperparameters, BrokenJsonNamesFileLineAndColumn) {
  const TemporaryFolder folder;
  const Layout layout(folder.path());
  write_file(layout.hyperparameters(), "{\n  \"epochs\": \"3\",\n  \"lr\": 0.1.2\n}");

  const std::string message = message_of([&] { read_hyperparameters(layout); });

  EXPECT_THAT(message, HasSubstr("hyperparameters.json: not valid JSON: line 3, column 12"));
}

TEST(Hyperparameters, TextThatIsNoJsonIsNamed) {
  const Hyperparameters split = split_hyperparameters(
      parse_json(R"({"a": "x", "b": "1", "c": "\"y\"", "d": 3, "sagemaker_e": "007"})"));

  EXPECT_THAT(split.not_json, ElementsAre("a", "sagemaker_e"));
}

class FileReference : public ::testing::Test {
 protected:
  /// The value that arrives for one that is sent.
  std::string arriving(const std::string& sent) {
    Value document = Value::Object{};
    document.set("config", sent);
    const Layout layout(folder_.path());
    write_file(layout.hyperparameters(), to_json(document));
    return to_json(*read_hyperparameters(layout, channels_).user.find("config"));
  }

  TemporaryFolder folder_;
  DataChannels channels_{.channels = {{"train", folder_.path() / "input/data/train"}}};
};

TEST_F(FileReference, TheFilesTextStandsForTheValue) {
  write_file(folder_.path() / "input/data/train/long.json", "{\"layers\": [1, 2]}\n");
  write_file(folder_.path() / "input/data/train/more/words", "two words");

  EXPECT_EQ(arriving("@file:train/long.json"), R"({"layers":[1,2]})");
  EXPECT_EQ(arriving("\"@file:train/more/words\""), "\"two words\"");  // as the SDK sends text
}

TEST_F(FileReference, OtherTextStays) {
  for (const char* text : {"@file:", "@file:train", "@file:other/x", "@file:/etc/passwd", "@fil"}) {
    EXPECT_EQ(arriving(text), '"' + std::string(text) + '"');
  }
}

TEST_F(FileReference, MistakesAreNamed) {
  write_file(folder_.path() / "input/data/secret", "x");
  write_file(folder_.path() / "input/data/train/large", std::string((1 << 20) + 1, 'x'));

  EXPECT_THAT(message_of([&] { arriving("@file:train/absent"); }), HasSubstr("does not exist"));
  EXPECT_THAT(message_of([&] { arriving("@file:train/../secret"); }), HasSubstr("outside"));
  EXPECT_THAT(message_of([&] { arriving("@file:train/large"); }), HasSubstr("is larger"));
  EXPECT_THAT(message_of([&] { arriving("@file:train/absent"); }),
              HasSubstr("hyperparameter \"config\" names file"));
}

}  // namespace
}  // namespace opt_ml
