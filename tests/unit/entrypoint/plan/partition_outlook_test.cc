// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/partition_outlook.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/plan/plan_report.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class PartitionOutlookTest : public ::testing::Test {
 protected:
  void write(const std::string& rest) const {
    testing_support::write_file(
        file(), fmt::format(R"({{"format": 1, "modules": {{"": 0, "1": 1}}, {}}})", rest));
  }

  [[nodiscard]] JobBuilder job(bool loads) const {
    return a_job()
        .with_hosts({"algo-1", "algo-2"})
        .with_mpi(1)
        .with("mp_parameters",
              fmt::format(R"({{"partitions": 2, "partition_file": "{}", "load_partition": {}}})",
                          file().string(), loads));
  }

  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "partition.json"; }

 private:
  testing_support::TemporaryFolder folder_;
};

constexpr const char* kSaid =
    R"("partitions": 2, "summary": "Partition chosen: zigzag of 2; predicted step 1.5 ms")";

TEST_F(PartitionOutlookTest, ShowsWhatALoadedFileExpects) {
  write(kSaid);

  const LaunchPlan plan = plan_to_show(job(true), a_machine());

  EXPECT_THAT(plan_text(plan, {}), HasSubstr("\nPartition:  from " + file().string() +
                                             ": zigzag of 2; predicted step 1.5 ms\n"));
  EXPECT_EQ(opt_ml::to_json(*opt_ml::parse_json(plan_json(plan, {})).find("partition")),
            fmt::format(R"({{"file":"{}","loaded":true,)"
                        R"("summary":"zigzag of 2; predicted step 1.5 ms"}})",
                        file().string()));
}

TEST_F(PartitionOutlookTest, ShowsWhatTheLastJobWrote) {
  EXPECT_THAT(plan_text(plan_to_show(job(false), a_machine()), {}), Not(HasSubstr("Partition:")));

  write(kSaid);

  EXPECT_THAT(plan_text(plan_to_show(job(false), a_machine()), {}),
              HasSubstr("partition.json, which the first step writes anew: zigzag of 2; "));
}

TEST_F(PartitionOutlookTest, WarnsOfAFileThatCannotBeLoaded) {
  EXPECT_THAT(plan_to_show(job(true), a_machine()).warnings,
              Contains(HasSubstr("partition.json is not there")));

  write(R"("partitions": 3)");

  EXPECT_THAT(plan_to_show(job(true), a_machine()).warnings,
              Contains(HasSubstr("it is for 3 partitions, but the job has partitions=2")));
  EXPECT_THAT(plan_to_show(job(false), a_machine()).warnings, IsEmpty());
}

TEST_F(PartitionOutlookTest, IsOfTheHostOfTheFirstRank) {
  write(kSaid);

  EXPECT_FALSE(plan_to_show(job(true).on_host("algo-2"), a_machine()).partition);
}

TEST_F(PartitionOutlookTest, IsNotYetThereWithCodeThatIsFetched) {
  const auto job = a_job()
                       .with_mpi(2)
                       .with_code({})
                       .with("sagemaker_submit_directory", "s3://bucket/code.tar.gz")
                       .with("mp_parameters",
                             R"({"partitions": 2, "partition_file": "p.json",
                                 "load_partition": true})");

  EXPECT_FALSE(plan_to_show(job, a_machine()).partition);
}

}  // namespace
}  // namespace entrypoint
