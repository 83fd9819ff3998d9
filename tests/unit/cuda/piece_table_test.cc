// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/piece_table.h"

#include <vector>

#include <gtest/gtest.h>

namespace smp::cuda {
namespace {

struct Counted {
  int* counts = nullptr;
  std::int64_t elements = 0;
};

TEST(PieceTable, EachElementBelongsToOneBlock) {
  const std::vector<std::int64_t> sizes{1, kElementsPerBlock - 1, kElementsPerBlock,
                                        0, kElementsPerBlock + 1, 3 * kElementsPerBlock,
                                        7};
  std::vector<std::vector<int>> counts;
  for (const std::int64_t size : sizes) counts.emplace_back(static_cast<std::size_t>(size));
  std::vector<Counted> runs;
  for (std::vector<int>& own : counts) {
    runs.push_back({own.data(), static_cast<std::int64_t>(own.size())});
  }

  std::int64_t blocks = 0;
  in_tables(runs, [&](const PieceTable<Counted>& table) {
    blocks += table.blocks();
    for (std::int64_t block = 0; block < table.blocks(); ++block) {
      const BlockRange range = table.range(block);
      EXPECT_LT(range.begin, range.end);
      EXPECT_LE(range.end, table.pieces[range.piece].elements);
      for (std::int64_t i = range.begin; i < range.end; ++i) ++table.pieces[range.piece].counts[i];
    }
  });

  EXPECT_EQ(blocks, 1 + 1 + 1 + 0 + 2 + 3 + 1);
  for (const std::vector<int>& own : counts) {
    for (const int count : own) ASSERT_EQ(count, 1);
  }
}

TEST(PieceTable, LongListsTakeSeveralTables) {
  std::vector<int> counts(200);
  std::vector<Counted> runs;
  for (int& count : counts) runs.push_back({&count, 1});

  int tables = 0;
  in_tables(runs, [&](const PieceTable<Counted>& table) {
    ++tables;
    for (std::int64_t block = 0; block < table.blocks(); ++block) {
      ++*table.pieces[table.range(block).piece].counts;
    }
  });

  EXPECT_EQ(tables, 4);
  EXPECT_EQ(counts, std::vector<int>(200, 1));
}

TEST(PieceTable, FitsTheArgumentsOfAnyGpu) {
  struct Largest {
    void* pointers[4];
    std::int64_t elements;
  };
  EXPECT_LE(sizeof(PieceTable<Largest>), 4096U - 128U);
}

}  // namespace
}  // namespace smp::cuda
