// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace entrypoint {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::chrono_literals;
using Clock = LineStream::Clock;

struct CollectedPieces {
  std::vector<std::string> pieces;  // "+" before a piece that starts a line
  LineStream stream{[this](std::string_view piece, bool starts_line) {
    pieces.push_back((starts_line ? "+" : "") + std::string(piece));
  }};
  Clock::time_point now{};
};

TEST(LineStream, JoinsALineThatComesInChunks) {
  CollectedPieces c;

  c.stream.append("ab", c.now);
  c.stream.append("c\nd", c.now);
  c.stream.append("\n\n", c.now);

  EXPECT_THAT(c.pieces, ElementsAre("+abc\n", "+d\n", "+\n"));
}

TEST(LineStream, PassesProgressBarsOnAtCarriageReturns) {
  CollectedPieces c;

  c.stream.append("10%\r20%\r\n", c.now);

  EXPECT_THAT(c.pieces, ElementsAre("+10%\r", "+20%\r", "+\n"));
}

TEST(LineStream, PassesAPartialLineOnAfterItsAge) {
  CollectedPieces c;
  c.stream.append("name? ", c.now);

  c.stream.flush_aged(c.now + 999ms);
  EXPECT_THAT(c.pieces, IsEmpty());
  EXPECT_EQ(c.stream.due(), c.now + 1s);
  c.stream.flush_aged(c.now + 1s);
  c.stream.append("rest\nnext\n", c.now + 2s);

  EXPECT_THAT(c.pieces, ElementsAre("+name? ", "rest\n", "+next\n"));
}

TEST(LineStream, LosesNothingAtTheEndAndBoundsALine) {
  CollectedPieces c;
  const std::string endless(LineStream::kLongestLine, 'x');

  c.stream.append(endless + "y", c.now);
  c.stream.append("tail", c.now);
  c.stream.finish();

  EXPECT_THAT(c.pieces, ElementsAre("+" + endless + "y", "tail"));
  EXPECT_EQ(c.stream.due(), Clock::time_point::max());
}

}  // namespace
}  // namespace entrypoint
