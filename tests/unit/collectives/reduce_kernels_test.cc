// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/collectives/reduce_kernels.h"

#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::collectives {
namespace {

using testing::ElementsAre;

constexpr std::array kTypes{ElementType::kFloat16, ElementType::kBFloat16, ElementType::kFloat32,
                            ElementType::kFloat64, ElementType::kInt8,     ElementType::kUint8,
                            ElementType::kInt16,   ElementType::kInt32,    ElementType::kInt64,
                            ElementType::kBool};
constexpr std::array kOps{ReduceOp::kSum,   ReduceOp::kAverage, ReduceOp::kProduct,
                          ReduceOp::kMin,   ReduceOp::kMax,     ReduceOp::kBitAnd,
                          ReduceOp::kBitOr, ReduceOp::kBitXor};

bool means_something(ElementType type, ReduceOp op) {
  try {
    check_reducible(type, op);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

template <typename T>
std::vector<T> reduced(ElementType type, ReduceOp op, std::vector<std::vector<T>> sources,
                       int divisor = 1) {
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) {
    pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
  }
  std::vector<T> result(sources.front().size());
  reduce(type, op, pointers, reinterpret_cast<std::byte*>(result.data()), result.size(), divisor);
  return result;
}

TEST(Reduce, VectorInstructionsGiveTheBitsOfPlainOnes) {
  std::mt19937_64 random(7);
  for (const ElementType type : kTypes) {
    for (const ReduceOp op : kOps) {
      if (!means_something(type, op)) continue;
      for (const size_t count : {1, 7, 8, 31, 1024, 1025, 3001}) {
        std::vector<std::vector<std::byte>> sources(3);
        std::vector<const std::byte*> pointers;
        for (auto& source : sources) {
          source.resize(count * size_bytes(type));
          for (std::byte& byte : source) byte = static_cast<std::byte>(random());
          // No NaN and no infinity, whose bits say which operand came first: small exponents.
          for (size_t i = size_bytes(type) - 1; type <= ElementType::kFloat64 && i < source.size();
               i += size_bytes(type)) {
            source[i] &= std::byte{0xbf};
          }
          pointers.push_back(source.data());
        }
        const int divisor = op == ReduceOp::kAverage ? 3 : 1;
        std::vector<std::byte> fast(sources[0].size());
        std::vector<std::byte> plain(fast.size());
        reduce(type, op, pointers, fast.data(), count, divisor);
        reduce_portably(type, op, pointers, plain.data(), count, divisor);

        ASSERT_EQ(std::memcmp(fast.data(), plain.data(), fast.size()), 0)
            << name(type) << " " << name(op) << " " << count;
      }
    }
  }
}

TEST(Reduce, AddsInTheOrderOfTheSources) {
  const float big = 16777216;  // 2^24: adding 1 changes nothing

  EXPECT_THAT(reduced<float>(ElementType::kFloat32, ReduceOp::kSum, {{big}, {1}, {1}}),
              ElementsAre(big));
  EXPECT_THAT(reduced<float>(ElementType::kFloat32, ReduceOp::kSum, {{1}, {1}, {big}}),
              ElementsAre(big + 2));
}

TEST(Reduce, SixteenBitsAreAddedInThirtyTwoAndRoundedOnce) {
  // In bfloat16, 256 + 1 is 256 again (8 bits of mantissa), four times.
  const uint16_t two_hundred_fifty_six = 0x4380;
  const uint16_t one = 0x3f80;
  const uint16_t two_hundred_sixty = 0x4382;

  EXPECT_THAT(reduced<uint16_t>(ElementType::kBFloat16, ReduceOp::kSum,
                                {{two_hundred_fifty_six}, {one}, {one}, {one}, {one}}),
              ElementsAre(two_hundred_sixty));
}

TEST(Reduce, EveryHalfSurvivesItsWayThroughFloat) {
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBFloat16}) {
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);

    const std::vector<uint16_t> same = reduced<uint16_t>(type, ReduceOp::kMax, {all});

    const uint16_t infinity = type == ElementType::kFloat16 ? 0x7c00 : 0x7f80;
    for (size_t i = 0; i < all.size(); ++i) {
      if ((i & 0x7fff) <= infinity) {
        ASSERT_EQ(same[i], all[i]);
      } else {
        ASSERT_GT(same[i] & 0x7fff, infinity) << "a NaN stays one";
      }
    }
  }
}

TEST(Reduce, IntegersWrapAndTheirAverageRoundsTowardsZero) {
  EXPECT_THAT(reduced<int8_t>(ElementType::kInt8, ReduceOp::kSum, {{100}, {100}}),
              ElementsAre(static_cast<int8_t>(-56)));
  EXPECT_THAT(reduced<int64_t>(ElementType::kInt64, ReduceOp::kAverage, {{-3}, {-4}}, 2),
              ElementsAre(-3));
  EXPECT_THAT(reduced<int64_t>(ElementType::kInt64, ReduceOp::kMax,
                               {{std::numeric_limits<int64_t>::min()}, {-1}}),
              ElementsAre(-1));
}

TEST(Reduce, TruthsStayTruths) {
  const std::vector<std::vector<uint8_t>> sources{{0, 0, 1, 1}, {0, 1, 0, 1}};

  EXPECT_THAT(reduced(ElementType::kBool, ReduceOp::kSum, sources), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(reduced(ElementType::kBool, ReduceOp::kProduct, sources), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(reduced(ElementType::kBool, ReduceOp::kBitXor, sources), ElementsAre(0, 1, 1, 0));
}

}  // namespace
}  // namespace smp::collectives
