// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/host_board.h"

#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"

namespace smp::transport {
namespace {

using testing::HasSubstr;

constexpr BoardShape kTwo{.ranks = 2, .writers = 2, .note_bytes = 64, .slot_bytes = 64};

WaitLimit a_limit() { return WaitLimit::after(std::chrono::seconds(30), "test"); }

/// Another rank as another process, which opens the memory by its address as ranks do.
template <typename Body>
pid_t fork_rank(const std::string& address, Body body) {
  const pid_t child = fork();
  if (child != 0) return child;
  int status = 1;
  try {
    auto segment =
        std::make_shared<SharedSegment>(SharedSegment::open(address, HostBoard::size_bytes(kTwo)));
    HostBoard board(segment, kTwo, 1, {10, 11});
    board.join(a_limit());
    body(board);
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

TEST(HostBoard, AnotherProcessReadsWhatWasPublished) {
  auto segment =
      std::make_shared<SharedSegment>(SharedSegment::create(HostBoard::size_bytes(kTwo)));
  HostBoard board(segment, kTwo, 0, {10, 11});
  const pid_t child = fork_rank(segment->address(), [](HostBoard& theirs) {
    for (uint32_t turn = 0; turn < 500; ++turn) {
      theirs.wait_for(0, turn + 2, a_limit());  // join was step 1
      *theirs.note(1, turn) = static_cast<std::byte>(2 * static_cast<int>(*theirs.note(0, turn)));
      theirs.publish();
    }
  });
  board.join(a_limit());

  for (uint32_t turn = 0; turn < 500; ++turn) {
    *board.note(0, turn) = static_cast<std::byte>(turn % 100);
    board.wait_for(1, board.publish(), a_limit());
    ASSERT_EQ(*board.note(1, turn), static_cast<std::byte>(2 * (turn % 100)));
  }

  EXPECT_EQ(status_of(child), 0);
}

TEST(HostBoard, AKilledProcessIsNamedLongBeforeTheLimit) {
  auto segment =
      std::make_shared<SharedSegment>(SharedSegment::create(HostBoard::size_bytes(kTwo)));
  HostBoard board(segment, kTwo, 0, {10, 11});
  const pid_t child = fork_rank(segment->address(), [](HostBoard&) { raise(SIGKILL); });
  board.join(a_limit());
  const auto start = Clock::now();

  try {
    board.wait_for_all(board.publish(), a_limit());
    FAIL() << "it should have thrown";
  } catch (const HostError& error) {
    EXPECT_THAT(error.what(), HasSubstr("test: the process of rank 11"));
  }

  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_TRUE(WIFSIGNALED(status_of(child)));
}

TEST(HostBoard, WhatARankPublishedBeforeItsEndIsRead) {
  auto segment =
      std::make_shared<SharedSegment>(SharedSegment::create(HostBoard::size_bytes(kTwo)));
  HostBoard board(segment, kTwo, 0, {10, 11});
  const pid_t child = fork_rank(segment->address(), [](HostBoard& theirs) {
    *theirs.note(1, 0) = std::byte{42};
    theirs.publish();
  });
  board.join(a_limit());
  EXPECT_EQ(status_of(child), 0);

  board.wait_for_all(board.publish(), a_limit());

  EXPECT_EQ(*board.note(1, 0), std::byte{42});
}

TEST(SharedSegment, HasNoNameInAnyFolderAndCannotBeOpenedOnceClosed) {
  SharedSegment segment = SharedSegment::create(4096);
  const std::string address = segment.address();
  EXPECT_THAT(std::filesystem::read_symlink(address).string(), HasSubstr("memfd:"));

  segment.close_address();

  EXPECT_THROW(SharedSegment::open(address, 4096), HostError);
}

TEST(SharedSegment, OfAnotherSizeIsRefused) {
  const SharedSegment segment = SharedSegment::create(4096);

  EXPECT_THROW(SharedSegment::open(segment.address(), 8192), HostError);
}

}  // namespace
}  // namespace smp::transport
