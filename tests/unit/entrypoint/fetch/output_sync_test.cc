// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/output_sync.h"

#include <fstream>
#include <future>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Pair;
using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

TEST(OutputSync, UploadsWhileTheJobRunsAndTheRestAtItsEnd) {
  const TemporaryFolder folder;
  const fs::path out = folder.path() / "intermediate";
  write_file(out / "before", "0");
  int stop[2];
  ASSERT_EQ(pipe(stop), 0);
  std::map<std::string, std::string> uploads;
  std::promise<void> live;
  const auto upload = [&](const fs::path& copy, const std::string& name) {
    uploads[name] = read_file(copy);
    if (name == "live") live.set_value();
  };

  auto result = std::async(std::launch::async, [&] {
    return sync_output(out, folder.path() / "staging", upload, stop[0]);
  });
  write_file(out / "live.tmp", "1");
  fs::rename(out / "live.tmp", out / "live");
  ASSERT_EQ(live.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  std::ofstream still_open(out / "open");
  still_open << "half" << std::flush;
  close(stop[1]);

  // live.tmp was uploaded too where the watch was up before it was renamed.
  const std::string summary = result.get();
  uploads.erase("live.tmp");
  EXPECT_THAT(uploads, ElementsAre(Pair("before", "0"), Pair("live", "1"), Pair("open", "half")));
  EXPECT_THAT(summary, ::testing::EndsWith(" files uploaded, 0 failed"));
  EXPECT_FALSE(fs::exists(folder.path() / "staging"));
  close(stop[0]);
}

}  // namespace
}  // namespace entrypoint::fetch
