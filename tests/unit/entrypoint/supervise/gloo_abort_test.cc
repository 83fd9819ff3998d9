// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/gloo_abort.h"

#include <csignal>

#include <gtest/gtest.h>

namespace entrypoint::supervise {
namespace {

constexpr launch::ExitStatus kAborted{.code = 0, .signal = SIGABRT};
constexpr launch::ExitStatus kAbortedBelowMpirun{.code = 134, .signal = 0};

OutputRecord record_of(std::string_view line) {
  OutputRecord record;
  record.add(StreamKind::kErr, nullptr, std::string(line) + "\n");
  return record;
}

TEST(GlooAbort, IsTheAbortThatGlooCaused) {
  const OutputRecord record =
      record_of("terminate called after throwing an instance of 'gloo::EnforceNotMet'");

  EXPECT_TRUE(is_gloo_abort(kAborted, record));
  EXPECT_TRUE(is_gloo_abort(kAbortedBelowMpirun, record));
}

TEST(GlooAbort, IsNoOtherStatusWhateverWasPrinted) {
  const OutputRecord record =
      record_of("terminate called after throwing an instance of 'gloo::EnforceNotMet'");

  for (const int code : {0, 1, 2, 133, 137, 139}) {
    EXPECT_FALSE(is_gloo_abort({.code = code, .signal = 0}, record)) << code;
  }
  EXPECT_FALSE(is_gloo_abort({.code = 0, .signal = SIGKILL}, record));
}

TEST(GlooAbort, IsNoOtherAbort) {
  EXPECT_FALSE(is_gloo_abort(kAborted, OutputRecord()));
  EXPECT_FALSE(is_gloo_abort(
      kAborted, record_of("terminate called after throwing an instance of 'std::bad_alloc'")));
  EXPECT_FALSE(is_gloo_abort(kAborted, record_of("print: gloo::EnforceNotMet")));
}

}  // namespace
}  // namespace entrypoint::supervise
