// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/error_text.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace smp::transport {
namespace {

TEST(ErrorText, LeavesOutTheFramesOfTorch) {
  const std::runtime_error error(
      "the store did not answer\n"
      "Exception raised from doWait at ../TCPStore.cpp:76 (most recent call first):\n"
      "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f in libc10.so)\n"
      "frame #1: <unknown function> + 0x5ffc5b1 (0x7f in libtorch_cpu.so)\n"
      "\n. This may mean that rank 0 has ended.");

  EXPECT_EQ(error_text(error), "the store did not answer\n. This may mean that rank 0 has ended.");
}

TEST(ErrorText, OfAnyErrorIsNotEmpty) {
  EXPECT_EQ(error_text(std::make_exception_ptr(std::runtime_error("it is full"))), "it is full");
  EXPECT_EQ(error_text(std::make_exception_ptr(std::runtime_error(""))), "an error without a text");
  EXPECT_EQ(error_text(std::make_exception_ptr(1)), "an error of another kind");
}

TEST(ErrorText, KeepsOtherTextAsItIs) {
  EXPECT_EQ(without_frames("a frame #0 within\na second line"), "a frame #0 within\na second line");
  EXPECT_EQ(without_frames(""), "");
}

}  // namespace
}  // namespace smp::transport
