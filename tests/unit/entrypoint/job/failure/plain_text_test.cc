// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "entrypoint/job/failure/output_record.h"

namespace entrypoint {
namespace {

TEST(PlainText, LeavesTextAsItIs) {
  EXPECT_EQ(plain_text("a\tb \xC3\xA9 \xF0\x9F\x98\x80\n"), "a\tb \xC3\xA9 \xF0\x9F\x98\x80\n");
}

TEST(PlainText, TakesTerminalSequencesOut) {
  EXPECT_EQ(plain_text("\x1b[1;31mValueError\x1b[0m: boom\x1b[K"), "ValueError: boom");
  EXPECT_EQ(plain_text("\x1b]0;title\x07text\x1b]8;;url\x1b\\link"), "textlink");
  EXPECT_EQ(plain_text("cut off \x1b[38;5"), "cut off ");
  EXPECT_EQ(plain_text("\x1b"), "");
  EXPECT_EQ(plain_text("\x1b(Bx"), "Bx");
}

TEST(PlainText, TakesControlCharactersOut) {
  EXPECT_EQ(plain_text(std::string_view("a\0b\x07\x08\x7f\r\x01z", 9)), "abz");
}

TEST(PlainText, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(plain_text("a\xFF\xC3"), "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace entrypoint
