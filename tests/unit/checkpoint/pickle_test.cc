// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/pickle.h"

#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/checkpoint/pickle_builder.h"
#include "tests/unit/fuzz_rounds.h"

namespace smp::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// There are records data/0, of four floats, and data/1, which is empty.
std::optional<std::int64_t> bytes_of(const std::string& record) {
  if (record == "data/0") return 16;
  if (record == "data/1") return 0;
  return std::nullopt;
}

PickledObject read(const std::string& object) { return read_pickle(pickle(object), bytes_of); }

template <typename Value>
Value as(const PickledObject& object) {
  return std::get<Value>(object->value);
}

void expect_refusal(const std::string& object, const char* text) {
  EXPECT_THAT([&] { read(object); }, ThrowsMessage<ConfigError>(HasSubstr(text)))
      << testing::PrintToString(object);
}

TEST(Pickle, GivesNumbersAndTexts) {
  EXPECT_EQ(as<bool>(read("\x88")), true);
  EXPECT_EQ(as<std::int64_t>(read("K\xff")), 255);
  EXPECT_EQ(as<std::int64_t>(read("M\x01\x02")), 513);
  EXPECT_EQ(as<std::int64_t>(read("J\xfe\xff\xff\xff")), -2);
  EXPECT_EQ(as<std::int64_t>(read("\x8a\x05\x00\x00\x00\x00\x02"s)), 1LL << 33);
  EXPECT_EQ(as<std::int64_t>(read("\x8a\x02\xff\xfe"s)), -257);
  EXPECT_EQ(as<std::int64_t>(read("\x8a\x00"s)), 0);
  EXPECT_EQ(as<double>(read("G\x3f\xf8\0\0\0\0\0\0"s)), 1.5);
  EXPECT_EQ(as<std::string>(read(words("a\nb"))), "a\nb");
  EXPECT_EQ(as<std::complex<double>>(
                read(name("builtins", "complex") +
                     tuple({"G\x3f\xf8\0\0\0\0\0\0"s, "G"s + "\0\0\0\0\0\0\0\0"s}) + "R")),
            std::complex<double>(1.5));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(read("N")->value));
}

TEST(Pickle, GivesListsTuplesAndDictionaries) {
  const auto list =
      as<PickledList>(read("](K\x01K\x02"
                           "eK\x03"
                           "a"));
  EXPECT_EQ(list.items.size(), 3);
  EXPECT_EQ(as<PickledTuple>(read(")")).items.size(), 0);
  EXPECT_EQ(as<PickledTuple>(read("K\x01K\x02\x86")).items.size(), 2);
  const auto dict =
      as<PickledDict>(read("}(" + words("a") + "K\x01" + "K\x02Nu" + words("b") + "Ns"));
  ASSERT_EQ(dict.items.size(), 3);
  EXPECT_EQ(as<std::string>(dict.items[2].first), "b");
  EXPECT_EQ(as<PickledTuple>(read(name("torch", "Size") + wholes({2, 3}) + "\x85R")).items.size(),
            2);
}

TEST(Pickle, KeepsOneObjectInSeveralPlacesOne) {
  // [d, d], as Python writes it: d is not part of the list yet when it is named again.
  const auto list = as<PickledList>(read("]q\0(}q\1h\1e"s));

  EXPECT_EQ(list.items[0], list.items[1]);
}

TEST(Pickle, AnOrderedDictionaryLosesItsAttributes) {
  const std::string made = name("collections", "OrderedDict") + ")Rq\1"s + words("a") + "Ns";

  EXPECT_EQ(as<PickledDict>(read(made + "}" + words("_metadata") + "Nsb")).items.size(), 1);
}

TEST(Pickle, GivesTensorsAsViews) {
  const auto whole_one = as<PickledTensor>(read(tensor({})));
  EXPECT_EQ(whole_one.storage.record, "data/0");
  EXPECT_EQ(whole_one.storage.type, "Float");
  const auto slice =
      as<PickledTensor>(read(tensor({.offset = 1, .sizes = {2, 2}, .strides = {1, 1}})));
  EXPECT_THAT(slice.sizes, ElementsAre(2, 2));
  // Expanded, without elements, without dimensions; and of an empty record, or of none.
  read(tensor({.sizes = {1000, 4}, .strides = {0, 1}}));
  read(tensor({.sizes = {0, 4}, .strides = {4, 1}}));
  read(tensor({.offset = 3, .sizes = {}, .strides = {}}));
  read(tensor({.sizes = {0}, .storage_text = storage(0, "1")}));
  read(tensor({.sizes = {0}, .storage_text = storage(0, "7")}));
}

TEST(Pickle, TensorsBeyondTheirRecordsAreRefused) {
  const std::vector<TensorOf> beyond{
      {.sizes = {5}},
      {.offset = 1},
      {.offset = -1, .sizes = {1}},
      {.offset = kMost},
      {.offset = 5, .sizes = {0}},
      {.sizes = {-1}},
      {.sizes = {2}, .strides = {-1}},
      {.sizes = {2}, .strides = {4}},
      {.sizes = {2}, .strides = {kMost}},
      {.sizes = {kMost, kMost}, .strides = {0, 0}},
      {.sizes = {kMost}, .strides = {kMost}},
      {.sizes = {1LL << 32, 1LL << 32, 2}, .strides = {1LL << 32, 1, 0}},
      {.sizes = {1, 1}, .strides = {1}},
      {.sizes = {1}, .strides = {}},
      {.storage_text = storage(2)},
      {.sizes = {1}, .storage_text = storage(0)},
  };

  for (const TensorOf& one : beyond)
    expect_refusal(tensor(one), "a tensor of record data/0 has sizes");
  expect_refusal("](" + tensor({}) + tensor({.sizes = {5}}) + "e",  // of a record that others share
                 "has sizes [5], strides [1] and offset 0: expected a view of at most 4 elements");
}

TEST(Pickle, StoragesBeyondTheirRecordsAreRefused) {
  for (const std::int64_t elements :
       {std::int64_t{5}, std::int64_t{-1}, kMost, -kMost, kMost / 4 + 2}) {
    expect_refusal(tensor({.sizes = {1}, .storage_text = storage(elements)}),
                   "its record data/0 has 16 bytes; expected");
  }
  expect_refusal(tensor({.storage_text = storage(4, "0", "DoubleStorage")}), "elements of 8 bytes");
  expect_refusal(tensor({.storage_text = storage(4, "7")}), "its record data/7 is missing");
}

TEST(Pickle, OtherTensorsAreRefused) {
  for (const char* kind : {"_rebuild_qtensor", "_rebuild_sparse_tensor", "_rebuild_tensor_v3",
                           "_rebuild_wrapper_subclass"}) {
    expect_refusal(name("torch._utils", kind), kind);
  }
  expect_refusal(storage(16, "0", "QInt8Storage"), "it holds torch.QInt8Storage");
  expect_refusal(storage(4), "a bare storage");
}

TEST(Pickle, ClassesAndFunctionsAreRefusedByName) {
  expect_refusal(name("os", "system") + words("true") + "\x85R", "it holds os.system; expected");
  expect_refusal(name("__main__", "Net") + ")R", "__main__.Net");
  expect_refusal(name("collections", "OrderedDict"), "collections.OrderedDict");
  expect_refusal("]" + name("torch", "Size") + "a", "torch.Size");
  expect_refusal(name("collections", "OrderedDict") + "]\x85R", "collections.OrderedDict");
  expect_refusal(name("torch", "FloatStorage") + "K\x05\x85R", "torch.FloatStorage");
}

TEST(Pickle, ListsOfOneKindHoldNothingElse) {
  const std::string ints = name("torch.jit._pickle", "build_intlist");

  EXPECT_EQ(as<PickledList>(read(ints + "](K\1K\2e\x85R")).kind, PickledList::Kind::kInts);
  expect_refusal(ints + "](K\1Ne\x85R", "wrong kind");
  expect_refusal(ints + "]\x85RNa", "adds to a list of one kind");
}

TEST(Pickle, NothingHoldsItself) {
  for (const std::string& knot : {
           "]q\1h\1a"s,     // l.append(l)
           "}q\1K\1h\1s"s,  // d[1] = d
           "]q\1(h\1te"s,   // l += [(l,)], were there a mark
           "]q\1h\1\x85"
           "a"s,           // l.append((l,))
           "]q\1]h\1aa"s,  // l.append([l])
           "]q\1h\1\x85q\1"
           "a"s,  // the same, with the number of l given away
           "]q\1]q\2h\1ah\2"
           "a"s,
       }) {
    EXPECT_THROW(read(knot), ConfigError) << testing::PrintToString(knot);
  }
}

TEST(Pickle, NestingIsBounded) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int time = 0; time < times; ++time) all += text;
    return all;
  };
  read("N" + repeated("\x85", 400));
  expect_refusal("N" + repeated("\x85", 100'000), "nested more than");
  expect_refusal(repeated("]", 100'000) + repeated("a", 99'999), "nested more than");

  // Lists that know their number, each put into the one before: all are empty at first.
  std::string chain;
  for (std::uint32_t number = 0; number < 100'000; ++number) {
    chain += "]r" + bytes_of_number(number);
  }
  expect_refusal(chain + repeated("a", 99'999), "nested more than");
}

TEST(Pickle, WhatIsNoPickleIsRefused) {
  for (const std::string& bytes : {
           ""s,
           "\x80"s,
           "\x80\x02"s,
           "\x80\x02."s,
           "\x80\x04N."s,
           "no pickle"s,
           "\x80\x02N"s,
           "\x80\x02NN."s,
           "\x80\x02(N."s,
           "\x80\x02t."s,
           "\x80\x02u."s,
           "\x80\x02s."s,
           "\x80\x02R."s,
           "\x80\x02Q."s,
           "\x80\x02q\x01."s,
           "\x80\x02h\x01."s,
           "\x80\x02X\xff\xff\xff\xffzz."s,
           "\x80\x02\x8a\xff."s,
           "\x80\x02\x8a\x09"
           "aaaaaaaaa."s,
           "\x80\x02"
           "cos"s,
           "\x80\x02}(K\1u."s,
           "\x80\x02}]Ns."s,
           "\x80\x02(](Nt."s,
           "\x80\x02N(Na."s,
           "\x80\x02NNNb."s,
           "\x80\x02\x95\0\0\0\0\0\0\0\0."s,
       }) {
    EXPECT_THROW(read_pickle(bytes, bytes_of), ConfigError) << testing::PrintToString(bytes);
  }
}

TEST(Pickle, DamagedOnesAreReadOrRefused) {
  const std::string good =
      pickle("}(" + words("a") + tensor({}) + "q\1"s + words("b") + "](h\1" + wholes({1, 2}) + "e" +
             words("c") + name("torch", "Size") + wholes({4}) + "\x85Ru");
  read_pickle(good, bytes_of);
  const auto survive = [&](const std::string& bytes) {
    try {
      read_pickle(bytes, bytes_of);
    } catch (const ConfigError&) {
    }
  };

  for (std::size_t size = 0; size < good.size(); ++size) survive(good.substr(0, size));
  std::mt19937 random(7);
  for (std::uint32_t round = 0; round < fuzz_rounds(50'000); ++round) {
    std::string bytes = good;
    for (std::uint32_t change = random() % 4 + 1; change > 0; --change) {
      const std::size_t at = random() % bytes.size();
      const char other =
          random() % 2 == 0 ? bytes[random() % bytes.size()] : static_cast<char>(random());
      if (random() % 3 == 0) {
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), other);
      } else {
        bytes[at] = other;
      }
    }
    survive(bytes);
  }
}

}  // namespace
}  // namespace smp::checkpoint
