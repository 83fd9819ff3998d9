// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/system_error.h"

#include <cerrno>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp {
namespace {

TEST(SystemErrorText, SaysWhichLimitToRaise) {
  EXPECT_THAT(system_error_text(EMFILE),
              testing::MatchesRegex("Too many open files: .* is [0-9]+ open files; raise it "
                                    "\\(ulimit -n\\), or have fewer groups at a time"));
  EXPECT_EQ(system_error_text(ENOENT), std::strerror(ENOENT));
}

}  // namespace
}  // namespace smp
