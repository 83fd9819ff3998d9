// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/objects.h"

#include <map>
#include <string>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/checkpoint/state/file_content.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/checkpoint/full_disk.h"
#include "tests/unit/checkpoint/pickle_builder.h"
#include "tests/unit/checkpoint/scratch_folder.h"

namespace smp::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A file of torch.save's form with any pickle in it, beside four floats.
struct HostileFile {
  ScratchFolder folder;
  std::filesystem::path path = folder.path() / "model_0_0.pt";
  std::map<std::string, std::string> records{{"data/0", std::string(16, '\0')}};

  explicit HostileFile(const std::string& object) { records["data.pkl"] = pickle(object); }

  c10::IValue read(bool compress = false) const {
    caffe2::serialize::PyTorchStreamWriter archive(path.string());
    for (const auto& [name, text] : records) {
      archive.writeRecord(name, text.data(), text.size(), compress);
    }
    archive.writeEndOfFile();
    return read_object(path);
  }
};

TEST(Objects, WhatIsWrittenIsRead) {
  const ScratchFolder folder;
  const at::Tensor values = at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).view({2, 2});
  auto list = new_list();
  list.push_back(true);
  list.push_back(c10::IValue());
  ObjectBuilder object;
  object.set("values", values).set("row", values[1]).set("text", "a\nb").set("list", list);
  object.set("tuple", std::make_tuple(std::int64_t{1}, 2.5)).set("many", std::int64_t{1} << 40);
  object.set("ints", std::vector<std::int64_t>{1, 2}).set("doubles", std::vector<double>{});
  object.set("tensors", std::vector<at::Tensor>{values}).set("flags", c10::List<bool>({true}));
  object.set("complex", c10::complex<double>(1, 2)).set("half", values.to(at::kBFloat16));

  write_object(folder.path() / "file", object.built());
  const auto read = read_object(folder.path() / "file").toGenericDict();

  EXPECT_TRUE(at::equal(read.at("values").toTensor(), values));
  EXPECT_TRUE(at::equal(read.at("half").toTensor(), values.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(read.at("row").toTensor(), values[1]));
  EXPECT_TRUE(
      read.at("row").toTensor().storage().is_alias_of(read.at("values").toTensor().storage()));
  EXPECT_EQ(read.at("text").toStringRef(), "a\nb");
  EXPECT_TRUE(read.at("list").toListRef()[1].isNone());
  EXPECT_EQ(read.at("tuple").toTupleRef().elements()[1].toDouble(), 2.5);
  EXPECT_EQ(read.at("many").toInt(), std::int64_t{1} << 40);
  EXPECT_THAT(read.at("ints").toIntVector(), ElementsAre(1, 2));
  EXPECT_THAT(read.at("doubles").toDoubleVector(), ElementsAre());
  EXPECT_TRUE(read.at("tensors").isTensorList());
  EXPECT_TRUE(read.at("flags").isBoolList());
  EXPECT_EQ(read.at("complex").toComplexDouble(), c10::complex<double>(1, 2));
}

TEST(Objects, AFullDiskIsAnErrorAndLeavesNothing) {
  const ScratchFolder folder;
  const c10::IValue object = at::full({100'000}, 1.0F);
  for (const rlim_t bytes : {0, 10'000, 399'999}) {
    const FullDisk disk(bytes);
    EXPECT_THAT([&] { write_object(folder.path() / "file", object); },
                ThrowsMessage<HostError>(HasSubstr("file: File too large")));
  }
  EXPECT_TRUE(folder.files().empty());
}

TEST(Objects, TextsMayBeLong) {
  const ScratchFolder folder;
  const std::string text(std::size_t{3} << 20, 'x');
  const at::Tensor first = at::full({1 << 20}, 1.0F), second = at::full({1 << 20}, 2.0F);
  ObjectBuilder object;
  object.set("text", text).set("first", first).set("second", second);

  write_object(folder.path() / "file", object.built());

  const auto read = read_object(folder.path() / "file").toGenericDict();
  EXPECT_TRUE(read.at("text").toStringRef() == text);
  EXPECT_TRUE(at::equal(read.at("second").toTensor(), second));
}

TEST(FileContent, WithoutMemoryHoldsWhatIsThere) {
  const ScratchFolder folder;
  const std::size_t bytes = (std::size_t{3} << 20) + 5;  // long, and of no whole block
  std::string several = "](";
  std::vector<at::Tensor> values;
  for (const int number : {0, 1, 2}) {
    several += tensor(
        {.sizes = {bytes}, .storage_text = storage(bytes, std::to_string(number), "ByteStorage")});
    values.push_back(at::full({static_cast<std::int64_t>(bytes)}, number, at::kByte));
  }
  const auto content = FileContent::archive("file", pickle(several + "e"), nullptr);
  for (const at::Tensor& value : values) content->add_storage(value);
  for (at::Tensor& value : values) value.add_(5);

  const FileDigest digest = content->write(folder.path());

  EXPECT_EQ(digest, digest_of(folder.path() / "file"));

  const c10::IValue read = read_object(folder.path() / "file");
  for (const std::size_t number : {0, 1, 2}) {
    EXPECT_TRUE(at::equal(read.toListRef()[number].toTensor(), values[number]));
  }
}

TEST(FileContent, HoldsWhatWasThere) {
  const ScratchFolder folder;
  const auto memory = std::make_shared<SnapshotMemory>();
  at::Tensor values = at::full({4}, 1, at::kByte);
  {
    const auto snapshot = FileContent::archive(
        "file", pickle(tensor({.storage_text = storage(4, "0", "ByteStorage")})), memory);
    snapshot->add_storage(values);
    values.fill_(2);
    snapshot->wait();
    EXPECT_EQ(snapshot->write(folder.path()).name, "file");
    EXPECT_EQ(memory->bytes(), 4);
  }
  EXPECT_TRUE(
      at::equal(read_object(folder.path() / "file").toTensor(), at::full({4}, 1, at::kByte)));
  EXPECT_EQ(memory->bytes(), 4) << "kept for the next one";
  memory->trim();
  EXPECT_EQ(memory->bytes(), 0);
}

TEST(Objects, ATensorIsNotLargerThanItsRecord) {
  const HostileFile views(tensor({.sizes = {4096}}));
  EXPECT_THAT([&] { views.read(); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr(views.path.string()), HasSubstr("data/0"),
                                               HasSubstr("[4096]"), HasSubstr("at most 4"))));

  const HostileFile storages(tensor({.sizes = {4096}, .storage_text = storage(4096)}));
  EXPECT_THAT(
      [&] { storages.read(); },
      ThrowsMessage<ConfigError>(HasSubstr("record data/0 has 16 bytes; expected 4096 elem")));
}

TEST(Objects, EmptyTensorsNeedNoRecord) {
  HostileFile file(tensor({.sizes = {0}, .storage_text = storage(0, "7")}));
  EXPECT_EQ(file.read().toTensor().numel(), 0);

  // A record that is said to be empty first, and is not.
  file.records["data.pkl"] =
      pickle("](" + tensor({.sizes = {0}, .storage_text = storage(0)}) + tensor({}) + "e");
  EXPECT_EQ(file.read().toListRef()[1].toTensor().numel(), 4);
}

TEST(Objects, OnlyWhatTorchSaveWritesIsRead) {
  HostileFile file(tensor({}));
  file.records["byteorder"] = "big";
  EXPECT_THAT([&] { file.read(); }, ThrowsMessage<ConfigError>(HasSubstr("highest bytes")));

  file.records["byteorder"] = "little";
  EXPECT_EQ(file.read().toTensor().numel(), 4);

  file.records["data/0"] = std::string(1'000'000, '\0');  // of which the file has 1,000 bytes
  EXPECT_THAT([&] { file.read(/*compress=*/true); },
              ThrowsMessage<ConfigError>(HasSubstr("data/0 has 1000000 bytes; expected at most")));

  file.records.erase("data.pkl");
  EXPECT_THAT([&] { file.read(); }, ThrowsMessage<ConfigError>(HasSubstr("no record data.pkl")));
}

TEST(Objects, NoClassIsLookedFor) {
  const HostileFile file(name("os", "system") + words("true") + "\x85R");

  EXPECT_THAT([&] { file.read(); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("cannot read"), HasSubstr("os.system"))));
}

TEST(ObjectReader, RefusesKeysThatAreNoNames) {
  ObjectBuilder object;
  object.set(1.5, 1);

  EXPECT_THAT([&] { static_cast<void>(ObjectReader(object.built(), "here").items()); },
              ThrowsMessage<ConfigError>(HasSubstr("here")));
}

TEST(ObjectReader, RefusesNumbersThatAreNoWholeOnes) {
  for (const double number : {1.5, 1e30, -1e30, std::nan("")}) {
    EXPECT_THAT([&] { static_cast<void>(ObjectReader(number, "here").integer()); },
                ThrowsMessage<ConfigError>(HasSubstr("here")));
  }
  EXPECT_EQ(ObjectReader((std::int64_t{1} << 62) + 1, "here").integer(),
            (std::int64_t{1} << 62) + 1);
  EXPECT_EQ(ObjectReader(at::full({1}, 7), "here").integer(), 7);
}

}  // namespace
}  // namespace smp::checkpoint
