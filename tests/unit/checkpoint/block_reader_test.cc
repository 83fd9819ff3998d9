// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/block_reader.h"

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/file.h"
#include "tests/unit/checkpoint/scratch_folder.h"

namespace smp::checkpoint {
namespace {

TEST(ReadBlocks, GivesFilesOfAnyLengthInOrder) {
  const ScratchFolder folder;
  constexpr std::size_t kBlock = std::size_t{4} << 20;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, kBlock - 1, kBlock, kBlock + 1,
                                  2 * kBlock, 5 * kBlock + 3}) {
    std::string text(bytes, 'a');
    for (std::size_t at = 0; at < bytes; at += 1000) text[at] = static_cast<char>(at / kBlock);
    folder.put("file", text);
    const FileDescriptor file(::open((folder.path() / "file").c_str(), O_RDONLY | O_CLOEXEC));

    std::string got;
    const int code = read_blocks(file.get(), [&](std::span<const std::byte> part) {
      got.append(reinterpret_cast<const char*>(part.data()), part.size());
    });

    EXPECT_EQ(code, 0);
    EXPECT_TRUE(got == text) << bytes;
  }
}

TEST(ReadBlocks, TellsWhatCannotBeRead) {
  const FileDescriptor folder(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(read_blocks(folder.get(), [](std::span<const std::byte>) {}), EISDIR);
}

}  // namespace
}  // namespace smp::checkpoint
