// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/python_text.h"

#include <limits>

#include <gtest/gtest.h>

#include "opt_ml_layout/json_document.h"

namespace opt_ml {
namespace {

TEST(PythonText, FloatsPrintAsRepr) {
  struct Case {
    double value;
    const char* expected;
  };
  for (const auto& [value, expected] :
       {Case{256, "256.0"}, Case{1e15, "1000000000000000.0"}, Case{1e16, "1e+16"},
        Case{1e-4, "0.0001"}, Case{1e-5, "1e-05"}, Case{1.5e-7, "1.5e-07"}, Case{0.1, "0.1"},
        Case{-0.0, "-0.0"}, Case{5e8, "500000000.0"}, Case{1e100, "1e+100"}, Case{5e-324, "5e-324"},
        Case{1.7976931348623157e308, "1.7976931348623157e+308"},
        Case{9007199254740993.0, "9007199254740992.0"}}) {
    EXPECT_EQ(python_float(value), expected);
  }
}

TEST(PythonText, SpecialFloatsDifferBetweenJsonAndStr) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_EQ(to_json(Value::List{infinity, -infinity, nan}), "[Infinity,-Infinity,NaN]");
  EXPECT_EQ(python_str(Value::List{infinity, -infinity, nan}), "[inf, -inf, nan]");
}

TEST(PythonText, JsonIsCompactSortedAndAscii) {
  EXPECT_EQ(to_json(parse_json(R"({"b": [1, {"z": null, "a": true}], "a": "ж\u007f😀/\n"})")),
            R"({"a":"\u0436\u007f\ud83d\ude00/\n","b":[1,{"a":true,"z":null}]})");
}

TEST(PythonText, ReprKeepsFileOrderAndPicksQuotes) {
  EXPECT_EQ(python_repr(parse_json(R"([1, 2.5, "x", null, true, {"k": 1, "a": "it's"}])")),
            R"([1, 2.5, 'x', None, True, {'k': 1, 'a': "it's"}])");
  EXPECT_EQ(python_repr(R"(both ' and ")"), R"('both \' and "')");
  EXPECT_EQ(python_repr("ж\\\n\x01\xC2\xA0\xE2\x80\x8B"), R"('ж\\\n\x01\xa0\u200b')");
}

TEST(PythonText, EnvironmentTextOfEachKind) {
  EXPECT_EQ(environment_text(Value()), "");
  EXPECT_EQ(environment_text("as is \"x\""), "as is \"x\"");
  EXPECT_EQ(environment_text(true), "true");
  EXPECT_EQ(environment_text(Value::List{}), "[]");
}

TEST(PythonText, UpperIsFullUnicode) {
  EXPECT_EQ(python_upper("batch-size.ß"), "BATCH-SIZE.SS");
  EXPECT_EQ(python_upper("жé😀ǆ"), "ЖÉ😀Ǆ");
  EXPECT_EQ(python_upper("ﬃ"), "FFI");
}

}  // namespace
}  // namespace opt_ml
