// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/rank_tags.h"

#include <gtest/gtest.h>

namespace entrypoint {
namespace {

TEST(RankTag, IsReadFromTheStartOfALine) {
  const auto tag = parse_rank_tag("[1,12]<stderr>:text");

  ASSERT_TRUE(tag.has_value());
  EXPECT_EQ(tag->rank, 12);
  EXPECT_EQ(tag->stream, "stderr");
  EXPECT_EQ(tag->text(), "[1,12]<stderr>:");
  EXPECT_EQ(tag->length, tag->text().size());
}

TEST(RankTag, IsNothingElse) {
  for (const char* line : {"", "[", "[1,0]", "[1,0]<stdin>:x", "[1,x]<stdout>:", " [1,0]<stdout>:x",
                           "[-1,0]<stdout>:x", "[1,99999999999]<stdout>:x", "[1,0]<stdout>x"}) {
    EXPECT_EQ(parse_rank_tag(line), std::nullopt) << line;
  }
}

TEST(RankTags, WriteRankAndHostIntoTheTag) {
  const RankTags tags({"algo-1", "algo-2"}, 2);
  const auto rewritten = [&tags](const char* line) { return tags.rewrite(*parse_rank_tag(line)); };

  EXPECT_EQ(rewritten("[1,3]<stdout>:"), "[1,mpirank:3,algo-2]<stdout>:");
  EXPECT_EQ(rewritten("[1,0]<stderr>:"), "[1,mpirank:0,algo-1]<stderr>:");
  EXPECT_EQ(rewritten("[1,12]<stderr>:"), "[1,12]<stderr>:");
}

TEST(RankTags, LearnsTheRealPlaceOfARankFromTheDisplayedMap) {
  // As Open MPI 4.1.4 prints it for --map-by node.
  RankTags tags({"algo-1", "algo-2"}, 2);
  tags.learn(" Data for node: algo-1\tNum slots: 2\tMax slots: 0\tNum procs: 2\n");
  tags.learn(" \tProcess OMPI jobid: [1,1] App: 0 Process rank: 0 Bound: N/A\n");
  tags.learn(" \tProcess OMPI jobid: [1,1] App: 0 Process rank: 2 Bound: N/A\n");
  tags.learn(" Data for node: algo-2\tNum slots: 2\tMax slots: 0\tNum procs: 2\n");
  tags.learn(" \tProcess OMPI jobid: [1,1] App: 0 Process rank: 1 Bound: N/A\n");

  EXPECT_EQ(tags.host_of(2), "algo-1");
  EXPECT_EQ(tags.host_of(1), "algo-2");
  EXPECT_EQ(tags.host_of(3), "algo-2");
}

TEST(RankTags, LearnsFromTheMapOfOpenMpi5) {
  RankTags tags({"algo-1", "algo-2"}, 2);
  tags.learn("Data for node: algo-2\tNum slots: 4\tMax slots: 0\tNum procs: 4\n");
  tags.learn("        Process jobid: prterun-algo-1-6@1 App: 0 Process rank: 0 Bound: N/A\n");
  tags.learn("Data for node: container-7\tNum slots: 4\tMax slots: 0\tNum procs: 4\n");
  tags.learn("        Process jobid: prterun-algo-1-6@1 App: 0 Process rank: 1 Bound: N/A\n");

  EXPECT_EQ(tags.host_of(0), "algo-2");
  EXPECT_EQ(tags.host_of(1), "algo-2");
}

}  // namespace
}  // namespace entrypoint
