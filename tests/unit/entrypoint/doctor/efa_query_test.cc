// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/doctor/host_probe.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing_support::TemporaryFolder;
using testing_support::write_file;

void write_program(const fs::path& file, std::string_view body) {
  write_file(file, std::string("#!/bin/sh\n").append(body));
  fs::permissions(file, fs::perms::owner_all);
}

TEST(EfaQuery, WithoutEfaTheOtherProvidersAreNamed) {
  const TemporaryFolder folder;
  write_program(folder.path() / "fi_info",
                "[ \"$1\" != -p ] || exit 61\n"
                "echo 'provider: tcp;ofi_rxm'\necho '    fabric: 10.0.0.0/8'\n"
                "echo 'provider: shm'\n");
  EfaProbe probe;

  ask_libfabric(folder.path().string(), probe);

  EXPECT_EQ(probe.provider, false);
  EXPECT_THAT(probe.providers, ElementsAre("tcp", "shm"));
}

TEST(EfaQuery, TheJobsChoiceOfAProviderHidesNothing) {
  const TemporaryFolder folder;
  write_program(folder.path() / "fi_info",
                "[ -z \"$FI_PROVIDER\" ] || exit 61\necho 'provider: efa'\n");
  EfaProbe probe;

  setenv("FI_PROVIDER", "sockets", 1);
  ask_libfabric(folder.path().string(), probe);
  unsetenv("FI_PROVIDER");

  EXPECT_EQ(probe.provider, true);
  EXPECT_THAT(probe.providers, IsEmpty());
}

TEST(EfaQuery, WithoutTheProgramNothingIsKnown) {
  const TemporaryFolder folder;
  EfaProbe probe;

  ask_libfabric(folder.path().string(), probe);

  EXPECT_FALSE(probe.provider.has_value());
}

TEST(EfaQuery, AProgramThatHangsSaysNothing) {
  const TemporaryFolder folder;
  write_program(folder.path() / "fi_info", "exec /bin/sleep 60\n");
  EfaProbe probe;

  ask_libfabric(folder.path().string(), probe, std::chrono::seconds(1));

  EXPECT_FALSE(probe.provider.has_value());
}

TEST(EfaQuery, TheJobsPluginWins) {
  const TemporaryFolder folder;
  write_file(folder.path() / "libnccl-net-ofi.so", "");
  const std::string found = (folder.path() / "libnccl-net-ofi.so").string();

  EXPECT_EQ(choose_nccl_plugin({{"LD_LIBRARY_PATH", folder.path().string()}}), found);
  EXPECT_EQ(choose_nccl_plugin(
                {{"LD_LIBRARY_PATH", folder.path().string()}, {"NCCL_NET_PLUGIN", "none"}}),
            "none");
}

}  // namespace
}  // namespace entrypoint
