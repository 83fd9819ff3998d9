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

}  // namespace
}  // namespace opt_ml
