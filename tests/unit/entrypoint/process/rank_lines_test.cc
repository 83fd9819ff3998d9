// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/rank_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace entrypoint {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::chrono_literals;

struct CollectedRankPieces {
  explicit CollectedRankPieces(TagEnd end = TagEnd::kColon) : tag_end(end) {}

  TagEnd tag_end;
  std::vector<std::string> pieces;
  RankLines lines{tag_end, [this](const RankTag* tag, std::string_view piece, bool starts_line) {
                    pieces.push_back((starts_line ? "+" : "") +
                                     (tag ? std::to_string(tag->rank) : "mpirun") + " " +
                                     std::string(piece));
                  }};
  LineStream::Clock::time_point now{};
};

TEST(RankLines, PutsTheWordsOfInterleavedPrintsTogether) {
  // print("loss", 1) and print("loss", 2) of two unbuffered ranks, as Open MPI 4.1.4 shows them.
  CollectedRankPieces c;

  c.lines.append("[1,0]<stdout>:loss[1,1]<stdout>:loss[1,0]<stdout>: [1,1]<stdout>: 2\n", c.now);
  c.lines.append("[1,0]<stdout>:1\n", c.now);

  EXPECT_THAT(c.pieces, ElementsAre("+1 loss 2\n", "+0 loss 1\n"));
}

TEST(RankLines, KeepsMpirunsOwnWordsApart) {
  CollectedRankPieces c;

  c.lines.append("[1,0]<stderr>:x\n", c.now);
  c.lines.append("mpirun noticed [1,0] <stderr>\n", c.now);

  EXPECT_THAT(c.pieces, ElementsAre("+0 x\n", "+mpirun mpirun noticed [1,0] <stderr>\n"));
}

TEST(RankLines, PassesAPartialLineOnWithItsRank) {
  CollectedRankPieces c;
  c.lines.append("[1,0]<stdout>:a[1,1]<stdout>:b", c.now);  // aged already when it comes here
  EXPECT_THAT(c.pieces, ElementsAre("+1 b"));

  c.lines.flush_aged(c.now + 1s);
  c.lines.append("c\n", c.now + 1s);
  c.lines.append("[1,0]<stdout>:d\n", c.now + 1s);

  EXPECT_THAT(c.pieces, ElementsAre("+1 b", "+0 a", "1 c\n", "0 d\n"));
  EXPECT_EQ(c.lines.due(), LineStream::Clock::time_point::max());
}

TEST(RankLines, MpirunsWordsMayComeWithinALine) {
  // The last line of a traceback whose rest comes from another host.
  CollectedRankPieces c;
  const std::string rule(74, '-');

  c.lines.append("[1,3]<stderr>:RuntimeError: " + rule + "\n", c.now);
  c.lines.append("Primary job  terminated normally, but\n", c.now);
  c.lines.append("[1,3]<stderr>:enough\n", c.now);

  EXPECT_THAT(c.pieces, ElementsAre("+mpirun " + rule + "\n",
                                    "+mpirun Primary job  terminated normally, but\n",
                                    "+3 RuntimeError: enough\n"));
}

TEST(RankLines, TheSpaceBehindATagOfOpenMpi5IsNoText) {
  CollectedRankPieces c(TagEnd::kSpace);
  const std::string rule(74, '-');

  c.lines.append("[1,0]<stdout>: a\n", c.now);
  c.lines.append("[1,0]<stdout>:  b\n", c.now);
  c.lines.append("[1,0]<stdout>: " + rule + "\n", c.now);
  c.lines.append("[1,0]<stdout>: \n", c.now);

  EXPECT_THAT(c.pieces, ElementsAre("+0 a\n", "+0  b\n", "+0 " + rule + "\n", "+0 \n"));
}

TEST(RankLines, ARankMayWriteRulesItself) {
  CollectedRankPieces c;
  const std::string rule(74, '-');

  c.lines.append("[1,3]<stdout>:" + rule + "\n", c.now);
  c.lines.append("[1,3]<stdout>:a" + rule + "-\n", c.now);

  EXPECT_THAT(c.pieces, ElementsAre("+3 " + rule + "\n", "+3 a" + rule + "-\n"));
}

TEST(RankLines, LosesNothingAtTheEnd) {
  CollectedRankPieces c;
  c.lines.append("[1,0]<stdout>:a[1,1]<stdout>:\n", c.now);
  EXPECT_THAT(c.pieces, ElementsAre("+1 \n"));

  c.lines.finish();

  EXPECT_THAT(c.pieces, ElementsAre("+1 \n", "+0 a"));
}

}  // namespace
}  // namespace entrypoint
