// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/shared_segment.h"

#include <csignal>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace smp::transport {
namespace {

using testing::HasSubstr;

constexpr SegmentShape kTwo{.ranks = 2, .writers = 2, .mailbox_bytes = 64, .buffer_bytes = 64};

WaitLimit a_limit() { return WaitLimit::after(std::chrono::seconds(30), "test"); }

/// Another rank as another process, which opens the memory by its address as ranks do.
template <typename Body>
pid_t fork_rank(const std::string& address, Body body) {
  const pid_t child = fork();
  if (child != 0) return child;
  int status = 1;
  try {
    auto memory = std::make_shared<SharedMemory>(
        SharedMemory::open(address, SharedSegment::size_bytes(kTwo)));
    SharedSegment segment(memory, kTwo, 1, {10, 11});
    segment.join(a_limit());
    body(segment);
    status = 0;
  } catch (...) {
    status = 2;
  }
  _exit(status);
}

int status_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(SharedSegment, AnotherProcessReadsWhatWasPublished) {
  auto memory =
      std::make_shared<SharedMemory>(SharedMemory::create(SharedSegment::size_bytes(kTwo)));
  SharedSegment segment(memory, kTwo, 0, {10, 11});
  const pid_t child = fork_rank(memory->address(), [](SharedSegment& theirs) {
    for (uint32_t turn = 0; turn < 500; ++turn) {
      theirs.wait_for(0, turn + 2, a_limit());  // join was step 1
      *theirs.mailbox(1, turn) =
          static_cast<std::byte>(2 * static_cast<int>(*theirs.mailbox(0, turn)));
      theirs.publish();
    }
  });
  segment.join(a_limit());

  for (uint32_t turn = 0; turn < 500; ++turn) {
    *segment.mailbox(0, turn) = static_cast<std::byte>(turn % 100);
    segment.wait_for(1, segment.publish(), a_limit());
    ASSERT_EQ(*segment.mailbox(1, turn), static_cast<std::byte>(2 * (turn % 100)));
  }

  EXPECT_EQ(status_of(child), 0);
}

TEST(SharedSegment, AKilledProcessIsNamedLongBeforeTheLimit) {
  auto memory =
      std::make_shared<SharedMemory>(SharedMemory::create(SharedSegment::size_bytes(kTwo)));
  SharedSegment segment(memory, kTwo, 0, {10, 11});
  const pid_t child = fork_rank(memory->address(), [](SharedSegment&) { raise(SIGKILL); });
  segment.join(a_limit());
  const auto start = Clock::now();

  try {
    segment.wait_for_all(segment.publish(), a_limit());
    FAIL() << "it should have thrown";
  } catch (const HostError& error) {
    EXPECT_THAT(error.what(), HasSubstr("test: the process of rank 11"));
  }

  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_TRUE(WIFSIGNALED(status_of(child)));
}

TEST(SharedSegment, WhatARankPublishedBeforeItsEndIsRead) {
  auto memory =
      std::make_shared<SharedMemory>(SharedMemory::create(SharedSegment::size_bytes(kTwo)));
  SharedSegment segment(memory, kTwo, 0, {10, 11});
  const pid_t child = fork_rank(memory->address(), [](SharedSegment& theirs) {
    *theirs.mailbox(1, 0) = std::byte{42};
    theirs.publish();
  });
  segment.join(a_limit());
  EXPECT_EQ(status_of(child), 0);

  segment.wait_for_all(segment.publish(), a_limit());

  EXPECT_EQ(*segment.mailbox(1, 0), std::byte{42});
}

TEST(SharedMemory, HasNoNameInAnyFolderAndCannotBeOpenedOnceClosed) {
  SharedMemory segment = SharedMemory::create(4096);
  const std::string address = segment.address();
  EXPECT_THAT(std::filesystem::read_symlink(address).string(), HasSubstr("memfd:"));

  segment.close_address();

  EXPECT_THROW(SharedMemory::open(address, 4096), HostError);
}

TEST(SharedMemory, OfAnotherSizeIsRefused) {
  const SharedMemory segment = SharedMemory::create(4096);

  EXPECT_THROW(SharedMemory::open(segment.address(), 8192), HostError);
}

TEST(SharedMemory, KeepsItsSizeAndTakesNoOtherFile) {
  const SharedMemory segment = SharedMemory::create(4096);
  const FileDescriptor file(::open(segment.address().c_str(), O_RDWR | O_CLOEXEC));
  const FileDescriptor other(memfd_create("a stranger's", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(other.get(), 4096), 0);
  const std::string place = fmt::format("/proc/self/fd/{}", other.get());

  EXPECT_NE(ftruncate(file.get(), 0), 0);
  EXPECT_THAT([&] { (void)SharedMemory::open(place, 4096); },
              testing::ThrowsMessage<HostError>(testing::HasSubstr("can be changed")));
}

}  // namespace
}  // namespace smp::transport
