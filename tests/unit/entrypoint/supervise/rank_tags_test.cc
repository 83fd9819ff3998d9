// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/rank_tags.h"

#include <gtest/gtest.h>

namespace entrypoint::supervise {
namespace {

TEST(RankTags, WritesRankAndHostIntoTheTag) {
  RankTags tags({"algo-1", "algo-2"}, 2);

  EXPECT_EQ(tags.rewrite("[1,3]<stdout>:loss 0.5\n"), "[1,mpirank:3,algo-2]<stdout>:loss 0.5\n");
  EXPECT_EQ(tags.rewrite("[1,0]<stderr>:x"), "[1,mpirank:0,algo-1]<stderr>:x");
  EXPECT_EQ(tags.rewrite("[1,12]<stderr>:x"), "[1,12]<stderr>:x");
}

TEST(RankTags, LeavesEverythingElseAlone) {
  RankTags tags({"algo-1"}, 2);

  for (const char* line : {"", "[", "[1,0]", "[1,0]<stdin>:x", "[1,x]<stdout>:", " [1,0]<stdout>:x",
                           "[-1,0]<stdout>:x", "[1,99999999999]<stdout>:x", "plain\n"}) {
    EXPECT_EQ(tags.rewrite(line), line);
  }
}

TEST(RankTags, DoesNothingWithoutHosts) {
  RankTags tags({}, 1);

  EXPECT_EQ(tags.rewrite("[1,0]<stdout>:x"), "[1,0]<stdout>:x");
}

TEST(RankTags, LearnsTheRealPlaceOfARankFromTheDisplayedMap) {
  // As Open MPI 4.1.4 prints it for --map-by node.
  RankTags tags({"algo-1", "algo-2"}, 2);
  tags.rewrite(" Data for node: algo-1\tNum slots: 2\tMax slots: 0\tNum procs: 2\n");
  tags.rewrite(" \tProcess OMPI jobid: [1,1] App: 0 Process rank: 0 Bound: N/A\n");
  tags.rewrite(" \tProcess OMPI jobid: [1,1] App: 0 Process rank: 2 Bound: N/A\n");
  tags.rewrite(" Data for node: algo-2\tNum slots: 2\tMax slots: 0\tNum procs: 2\n");
  tags.rewrite(" \tProcess OMPI jobid: [1,1] App: 0 Process rank: 1 Bound: N/A\n");

  EXPECT_EQ(tags.host_of(2), "algo-1");
  EXPECT_EQ(tags.host_of(1), "algo-2");
  EXPECT_EQ(tags.host_of(3), "algo-2");
}

}  // namespace
}  // namespace entrypoint::supervise
