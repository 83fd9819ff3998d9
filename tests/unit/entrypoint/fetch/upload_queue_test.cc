// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/upload_queue.h"

#include <future>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

struct QueueCase {
  TemporaryFolder folder;
  fs::path out = folder.path() / "out";
  fs::path staging = folder.path() / "staging";
  std::vector<std::string> uploads;  // "name=content", written by the queue's thread alone

  QueueCase() { fs::create_directory(out); }
  Upload upload() {
    return [this](const fs::path& copy, const std::string& name) {
      uploads.push_back(name + "=" + read_file(copy));
    };
  }
};

TEST(UploadQueue, UploadsCopiesInOrder) {
  QueueCase job;
  {
    UploadQueue queue(job.out, job.staging, job.upload());
    for (const char* name : {"b", "d/a", "c"}) {
      write_file(job.out / name, name);
      queue.add(job.out / name);
      fs::remove(job.out / name);  // the copy is what counts
    }
    queue.finish();
    EXPECT_EQ(queue.uploaded(), 3);
    EXPECT_TRUE(fs::is_empty(job.staging));
    EXPECT_EQ(fs::status(job.staging).permissions(), fs::perms::owner_all);
  }
  EXPECT_THAT(job.uploads, ElementsAre("b=b", "d/a=d/a", "c=c"));
  EXPECT_FALSE(fs::exists(job.staging));
}

TEST(UploadQueue, AnUnchangedFileIsNotTakenAgain) {
  QueueCase job;
  UploadQueue queue(job.out, job.staging, job.upload());
  write_file(job.out / "a", "1");

  queue.add(job.out / "a");
  queue.finish();
  queue.add_if_changed(job.out / "a");
  queue.finish();
  write_file(job.out / "a", "22");
  queue.add_if_changed(job.out / "a");
  queue.finish();

  EXPECT_THAT(job.uploads, ElementsAre("a=1", "a=22"));
}

TEST(UploadQueue, AFailedUploadIsTakenOnceMore) {
  QueueCase job;
  int attempts = 0;
  UploadQueue queue(job.out, job.staging, [&](const fs::path& copy, const std::string& name) {
    if (++attempts == 1) throw std::runtime_error("HTTP status 503");
    job.upload()(copy, name);
  });
  write_file(job.out / "a", "1");

  queue.add(job.out / "a");
  queue.finish();
  EXPECT_EQ(queue.failed(), 1);
  queue.add_if_changed(job.out / "a");
  queue.finish();

  EXPECT_THAT(job.uploads, ElementsAre("a=1"));
  EXPECT_EQ(queue.failed(), 0);
}

TEST(UploadQueue, OnlyTheLastOfWaitingVersionsIsUploaded) {
  QueueCase job;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  UploadQueue queue(job.out, job.staging, [&](const fs::path& copy, const std::string& name) {
    released.wait_for(std::chrono::seconds(60));
    job.upload()(copy, name);
  });
  const auto put = [&](const char* name, const char* text) {
    write_file(job.out / name, text);
    queue.add(job.out / name);
  };

  put("busy", "0");
  put("a", "1");
  put("b", "2");
  put("a", "333");
  release.set_value();
  queue.finish();

  // "busy" may have been taken by then or not; what waits behind it is the same.
  EXPECT_THAT(job.uploads, ElementsAre("busy=0", "b=2", "a=333"));
}

TEST(UploadQueue, ErrorsEndNothing) {
  QueueCase job;
  UploadQueue queue(job.out, job.staging, [&](const fs::path& copy, const std::string& name) {
    if (name == "bad") throw std::runtime_error("HTTP status 403");
    job.upload()(copy, name);
  });
  for (const char* name : {"bad", "good"}) {
    write_file(job.out / name, "");
    queue.add(job.out / name);
  }
  queue.add(job.out / "not there");
  queue.finish();

  EXPECT_THAT(job.uploads, ElementsAre("good="));
  EXPECT_EQ(queue.uploaded(), 1);
  EXPECT_EQ(queue.failed(), 1);
}

TEST(StagedName, HoldsTheTimeInUtcToTheMicrosecond) {
  EXPECT_EQ(staged_name(1'795'226'115'000'042, "model.pt"), "2026-11-21-01-55-15-000042.model.pt");
}

}  // namespace
}  // namespace entrypoint::fetch
