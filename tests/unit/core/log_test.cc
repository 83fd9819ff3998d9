// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/log.h"

#include <gtest/gtest.h>

namespace smp::log {
namespace {

TEST(LogLevel, IsANumberOrAName) {
  EXPECT_EQ(parse_level("10"), Level::kDebug);
  EXPECT_EQ(parse_level("debug"), Level::kDebug);
  EXPECT_EQ(parse_level("WARN"), Level::kWarning);
  EXPECT_EQ(parse_level("15"), static_cast<Level>(15));
}

TEST(LogLevel, IsNothingElse) {
  for (const char* text : {"", "loud", "10 ", "-1", "1.5"}) {
    EXPECT_EQ(parse_level(text), std::nullopt) << text;
  }
}

TEST(Log, MasksMessages) {
  mask_messages([](const std::string& text) { return text == "secret 1" ? "secret *" : text; });

  testing::internal::CaptureStderr();
  SMP_LOG(error, "secret {}", 1);
  const std::string masked = testing::internal::GetCapturedStderr();
  mask_messages({});

  EXPECT_TRUE(masked.ends_with(" secret *\n")) << masked;
}

}  // namespace
}  // namespace smp::log
