// SPDX-License-Identifier: Apache-2.0
// Texts of Open MPI 5.0.7; those of Open MPI 4 are in the other tests here.
#include "entrypoint/job/failure/reported_end.h"

#include <initializer_list>

#include <gtest/gtest.h>

namespace entrypoint {
namespace {

EndReports of(std::initializer_list<const char*> lines) {
  EndReports reports;
  reports.expect_mpirun();
  const std::string rule(74, '-');
  reports.add(rule);
  for (const char* line : lines) EXPECT_TRUE(reports.add(line)) << line;
  reports.add(rule);
  return reports;
}

TEST(EndReports, OfOpenMpi5ReadTheSignalOfTheNextLine) {
  const EndReports reports =
      of({"prterun noticed that process rank 2 with PID 40 on node algo-1 exited on",
          "signal 9 (Killed)."});
  ASSERT_TRUE(reports.first());
  EXPECT_EQ(reports.first()->rank, 2);
  EXPECT_EQ(reports.first()->status->signal, 9);
}

TEST(EndReports, OfOpenMpi5ReadTheCodeOfTheFirstRankToEnd) {
  const EndReports exited =
      of({"prterun detected that one or more processes exited with non-zero status,",
          "thus causing the job to be terminated. The first process to do so was:", "",
          "   Process name: [prterun-algo-1-18@1,2]", "   Exit code:    3"});
  EXPECT_EQ(exited.first()->rank, 2);
  EXPECT_EQ(exited.first()->status->code, 3);

  const EndReports aborted = of({"MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD",
                                 "  Proc: [[5219,1],1]", "  Errorcode: 7"});
  EXPECT_EQ(aborted.first()->rank, 1);
  EXPECT_EQ(aborted.first()->status->code, 7);
}

TEST(EndReports, LeaveAScriptsOwnProcessNamesAlone) {
  EndReports reports;
  for (const char* line : {"Process name: [worker]", "Process name: [a, 7]", "Process name: ["}) {
    EXPECT_FALSE(reports.add(line)) << line;
  }
  reports.add("Process name: [[");
  EXPECT_FALSE(reports.first());
}

TEST(EndReports, OfOpenMpi5NameALostHost) {
  const EndReports reports = of({"PRTE has lost communication with a remote daemon.", "",
                                 "  HNP daemon   : [prterun-algo-1-74@0,0] on node algo-1",
                                 "  Remote daemon: [prterun-algo-1-74@0,1] on node algo-2"});
  EXPECT_EQ(reports.lost_host(), "algo-2");
  EXPECT_FALSE(reports.first());
}

}  // namespace
}  // namespace entrypoint
