// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/reduce_kernels.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
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

        std::vector<std::byte> fast_part(count * part_size_bytes(type, op));
        std::vector<std::byte> plain_part(fast_part.size());
        reduce(type, op, pointers, fast_part.data(), count, 1, Stage::kPart);
        reduce_portably(type, op, pointers, plain_part.data(), count, 1, Stage::kPart);
        ASSERT_EQ(fast_part, plain_part) << name(type) << " " << name(op) << " " << count;
        const std::array<const std::byte*, 2> parts{fast_part.data(), plain_part.data()};
        reduce(type, op, parts, fast.data(), count, 2 * divisor, Stage::kParts);
        reduce_portably(type, op, parts, plain.data(), count, 2 * divisor, Stage::kParts);
        ASSERT_EQ(fast, plain) << name(type) << " " << name(op) << " " << count;
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

/// Average of the sources in two stages: those of two hosts, the first one of which has all but
/// one.
template <typename T>
std::vector<T> averaged_by_hosts(ElementType type, const std::vector<std::vector<T>>& sources) {
  const size_t count = sources.front().size();
  const size_t part_bytes = count * part_size_bytes(type, ReduceOp::kAverage);
  std::vector<std::vector<std::byte>> parts(2, std::vector<std::byte>(part_bytes));
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) {
    pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
  }
  const std::span all(pointers);
  reduce(type, ReduceOp::kAverage, all.first(all.size() - 1), parts[0].data(), count, 1,
         Stage::kPart);
  reduce(type, ReduceOp::kAverage, all.last(1), parts[1].data(), count, 1, Stage::kPart);
  // The result takes the place of a part.
  const std::array<const std::byte*, 2> both{parts[0].data(), parts[1].data()};
  reduce(type, ReduceOp::kAverage, both, parts[0].data(), count, static_cast<int>(sources.size()),
         Stage::kParts);
  std::vector<T> result(count);
  std::memcpy(result.data(), parts[0].data(), count * sizeof(T));
  return result;
}

template <typename T>
void expect_average(ElementType type, std::vector<T> values, T average) {
  std::vector<std::vector<T>> sources;  // long enough for vectors, blocks, and what is left of both
  for (const T value : values) sources.emplace_back(2 * 1024 + 17, value);
  const int ranks = static_cast<int>(values.size());

  EXPECT_THAT(reduced(type, ReduceOp::kAverage, sources, ranks), testing::Each(average))
      << name(type);
  EXPECT_THAT(averaged_by_hosts(type, sources), testing::Each(average)) << name(type);
}

TEST(Reduce, AnAverageIsThereWhereItsSumIsBeyondTheType) {
  expect_average<int8_t>(ElementType::kInt8, {100, 120, 127, 117}, 116);
  expect_average<int8_t>(ElementType::kInt8, {-128, -128, -127}, -127);
  expect_average<uint8_t>(ElementType::kUint8, {255, 255, 253}, 254);
  expect_average<int16_t>(ElementType::kInt16, {32767, 32767, 32764}, 32766);
  expect_average<int32_t>(ElementType::kInt32, {2147483647, 2147483647, 2147483644}, 2147483646);
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  expect_average<int64_t>(ElementType::kInt64, {most, most, most - 3}, most - 1);
  expect_average<int64_t>(ElementType::kInt64, {-most, -most, 4 - most}, 2 - most);
  constexpr uint16_t largest = 0x7bff;  // 65504
  expect_average<uint16_t>(ElementType::kFloat16, {largest, largest, largest, largest}, largest);
}

TEST(Reduce, AnAverageInTwoStagesKeepsTheSmallestAndWholeNumbers) {
  constexpr uint16_t smallest = 1;  // the smallest float16: 2^-24, of which half is none
  expect_average<uint16_t>(ElementType::kFloat16, {smallest, smallest, smallest, smallest},
                           smallest);
  constexpr uint16_t one = 0x3c00;
  expect_average<uint16_t>(ElementType::kFloat16, {one, one, one}, one);
  expect_average<float>(ElementType::kFloat32, {1, 2, 3}, 2);
  expect_average<int32_t>(ElementType::kInt32, {-3, -4}, -3);
}

/// A NaN in each place of each source, in turn.
template <typename T>
void expect_nan_wins(ElementType type, T nan, T low, T high) {
  const auto is_nan = [type](T value) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::isnan(value);
    } else {
      return (value & 0x7fff) > (type == ElementType::kFloat16 ? 0x7c00 : 0x7f80);
    }
  };
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const size_t count = 1024 + 41;
    std::vector<std::vector<T>> sources{std::vector<T>(count, low), std::vector<T>(count, high),
                                        std::vector<T>(count, low)};
    for (size_t i = 0; i < count; ++i) {
      if (i % 4 < 3) sources[i % 4][i] = nan;  // every fourth has none
    }

    const std::vector<T> result = reduced(type, op, sources);

    for (size_t i = 0; i < count; ++i) {
      if (i % 4 < 3) {
        ASSERT_TRUE(is_nan(result[i])) << name(type) << " " << name(op) << " " << i;
      } else {
        ASSERT_EQ(result[i], op == ReduceOp::kMin ? low : high) << name(type) << " " << i;
      }
    }
  }
}

TEST(Reduce, NotANumberWinsOverEveryNumberWhereverItIs) {
  constexpr auto inf = std::numeric_limits<float>::infinity();
  expect_nan_wins<float>(ElementType::kFloat32, std::nanf(""), -inf, inf);
  expect_nan_wins<float>(ElementType::kFloat32, -std::nanf(""), 2, 3);
  expect_nan_wins<double>(ElementType::kFloat64, std::nan(""), -inf, inf);
  expect_nan_wins<uint16_t>(ElementType::kFloat16, 0x7e00, 0xfc00, 0x7c00);
  expect_nan_wins<uint16_t>(ElementType::kFloat16, 0xfe01, 0x0001, 0x3c00);
  expect_nan_wins<uint16_t>(ElementType::kBFloat16, 0x7fc0, 0x3f80, 0x7f7f);
}

TEST(Reduce, TruthsStayTruths) {
  const std::vector<std::vector<uint8_t>> sources{{0, 0, 1, 1}, {0, 1, 0, 1}};

  EXPECT_THAT(reduced(ElementType::kBool, ReduceOp::kSum, sources), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(reduced(ElementType::kBool, ReduceOp::kProduct, sources), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(reduced(ElementType::kBool, ReduceOp::kBitXor, sources), ElementsAre(0, 1, 1, 0));
}

}  // namespace
}  // namespace smp::collectives
