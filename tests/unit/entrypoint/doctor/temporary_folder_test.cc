// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/opt_ml_layout/temporary_folder.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/doctor/host_probe.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& folder, const std::vector<std::string>& argv = {"mpirun"}) {
  return testing_support::message_of([&] { try_temporary_folder(argv, {{"TMPDIR", folder}}); });
}

TEST(TemporaryFolder, IsLookedForAsOpenMpiDoes) {
  smp::Variables environment;
  EXPECT_EQ(temporary_folder(environment), "/tmp");
  for (const char* name : {"TMP", "TEMP", "TMPDIR", "OMPI_MCA_orte_tmpdir_base"}) {
    environment[name] = std::string("/") + name;
    EXPECT_EQ(temporary_folder(environment), std::string("/") + name);
  }
}

TEST(TemporaryFolder, OneWhereNothingCanBeMadeIsRefused) {
  EXPECT_THAT(refusal("/proc/sys/kernel"), HasSubstr("set TMPDIR to a folder that can be written"));
  EXPECT_THAT(refusal("/proc/no/such"), HasSubstr("/proc/no/such: mpirun has to make a folder"));
  EXPECT_THAT(refusal("/dev/null"), HasSubstr("Not a directory"));
  // Its options name another one.
  EXPECT_EQ(refusal("/proc", {"mpirun", "-mca", "orte_tmpdir_base", "/var/tmp"}), "");
}

TEST(TemporaryFolder, AGoodOneIsLeftAsItWas) {
  const testing_support::TemporaryFolder folder;

  EXPECT_EQ(refusal(folder.path()), "");
  EXPECT_EQ(refusal(folder.path() / "not/yet"), "");

  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace entrypoint
