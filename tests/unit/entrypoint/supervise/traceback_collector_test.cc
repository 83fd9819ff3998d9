// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/traceback_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace entrypoint::supervise {
namespace {

using testing::ElementsAre;

constexpr const char* kHeader = "Traceback (most recent call last):";

Traceback collected(std::initializer_list<const char*> lines) {
  TracebackCollector collector;
  for (const char* line : lines) collector.add(line);
  return collector.last();
}

TEST(TracebackCollector, TakesAPlainBlock) {
  EXPECT_THAT(
      collected({"noise", kHeader, "  File \"a.py\", line 1", "    f()", "KeyError: 1", "x"}).lines,
      ElementsAre(kHeader, "  File \"a.py\", line 1", "    f()", "KeyError: 1"));
}

TEST(TracebackCollector, TakesTorchsPrefixOff) {
  const Traceback found =
      collected({"[rank3]: Traceback (most recent call last):", "[rank3]:   File \"a.py\", line 1",
                 "[rank3]:     f()", "[rank3]: ValueError: boom", "[rank3]:[W1] warning"});

  EXPECT_THAT(found.lines,
              ElementsAre(kHeader, "  File \"a.py\", line 1", "    f()", "ValueError: boom"));
  EXPECT_EQ(found.exception(), "ValueError: boom");
}

TEST(TracebackCollector, TakesPipsIndentationOff) {
  EXPECT_EQ(collected({"  x python setup.py egg_info did not run successfully.", "  exit code: 1",
                       "      Traceback (most recent call last):",
                       "        File \"setup.py\", line 1", "      RuntimeError: no compiler",
                       "      [end of output]", "error: metadata-generation-failed"})
                .exception(),
            "RuntimeError: no compiler");
}

TEST(TracebackCollector, TakesALoggersPrefixOffTheFirstLine) {
  EXPECT_EQ(collected({"ERROR:root:Traceback (most recent call last):", "  File \"a.py\", line 1",
                       "OSError: gone"})
                .exception(),
            "OSError: gone");
}

TEST(TracebackCollector, FindsTheCauseInAnExceptionGroup) {
  EXPECT_EQ(collected({"  + Exception Group Traceback (most recent call last):",
                       "  |   File \"a.py\", line 1, in <module>",
                       "  | ExceptionGroup: tasks (1 sub-exception)",
                       "  +-+---------------- 1 ----------------",
                       "    | Traceback (most recent call last):",
                       "    |   File \"a.py\", line 9, in task", "    | TypeError: inner",
                       "    +------------------------------------"})
                .exception(),
            "TypeError: inner");
  EXPECT_EQ(collected({"  + Exception Group Traceback (most recent call last):",
                       "  |   File \"a.py\", line 1, in <module>",
                       "  | ExceptionGroup: tasks (1 sub-exception)"})
                .exception(),
            "ExceptionGroup: tasks (1 sub-exception)");
}

TEST(TracebackCollector, KeepsTheCauseOverAParentsReport) {
  for (const char* report :
       {"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1."}) {
    EXPECT_EQ(collected({kHeader, "  File \"train.py\"", "ValueError: cause", kHeader,
                         "  File \"/bin/torchrun\"", report})
                  .exception(),
              "ValueError: cause");
    EXPECT_EQ(collected({kHeader, "  File \"/bin/torchrun\"", report}).exception(), report);
  }
}

TEST(TracebackCollector, SaysWhenABlockWasCutOff) {
  EXPECT_EQ(collected({kHeader, "  File \"a.py\"", "> somebody else <"}).exception(), "");
}

}  // namespace
}  // namespace entrypoint::supervise
