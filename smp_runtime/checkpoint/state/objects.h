// SPDX-License-Identifier: Apache-2.0
// Objects of checkpoints as files that torch.save and torch.load know.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>

#include "smp_runtime/checkpoint/atomic_file.h"

namespace smp::checkpoint {

/// Numbers, texts, tensors, and lists and dictionaries of them. The file is there whole or not at
/// all; throws HostError.
FileDigest write_object(const std::filesystem::path& path, const c10::IValue& object);

/// Storages that a pickle refers to by number, as bytes.
using Storages = std::span<const at::Tensor>;

/// Calls `use` with what such a file has of `object`. Throws c10::Error for what none can hold.
void with_pickled(const c10::IValue& object,
                  const std::function<void(std::string_view pickle, Storages storages)>& use);

/// Reads what torch.save wrote, as read_pickle() has it; tensors that shared memory do so again.
/// Throws ConfigError, which names the file, for one that is absent, cut short, damaged, or holds
/// objects of classes.
c10::IValue read_object(const std::filesystem::path& path);

/// A dictionary to be written.
class ObjectBuilder {
 public:
  ObjectBuilder();
  ObjectBuilder& set(const c10::IValue& key, const c10::IValue& value) {
    dictionary_.insert_or_assign(key, value);
    return *this;
  }
  [[nodiscard]] c10::IValue built() const { return dictionary_; }

 private:
  c10::impl::GenericDict dictionary_;
};

[[nodiscard]] c10::impl::GenericList new_list();

/// A list to be written, of anything that c10::IValue takes.
template <typename Range>
[[nodiscard]] c10::IValue list_of(const Range& values) {
  auto list = new_list();
  for (const auto& value : values) list.push_back(value);
  return list;
}

/// An object that was read, asked for what it is to be; `where` begins the ConfigErrors if it is
/// something else.
class ObjectReader {
 public:
  ObjectReader(c10::IValue object, std::string where)
      : object_(std::move(object)), where_(std::move(where)) {}

  [[nodiscard]] bool has(std::string_view key) const;
  /// The value of a key, which has to be there.
  [[nodiscard]] ObjectReader at(std::string_view key) const;
  /// Items of a dictionary, in order. Keys are texts, or whole numbers, which become texts.
  [[nodiscard]] std::vector<std::pair<std::string, ObjectReader>> items() const;
  /// Elements of a list or tuple.
  [[nodiscard]] std::vector<ObjectReader> elements() const;
  [[nodiscard]] at::Tensor tensor() const;
  [[nodiscard]] bool is_tensor() const { return object_.isTensor(); }
  [[nodiscard]] bool is_list() const { return object_.isList() || object_.isTuple(); }
  /// A number, or a tensor of one element.
  [[nodiscard]] double number() const;
  [[nodiscard]] bool is_number() const;
  /// A number without a fraction.
  [[nodiscard]] std::int64_t integer() const;
  [[nodiscard]] bool flag() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::vector<std::int64_t> integers() const;
  [[nodiscard]] const c10::IValue& object() const { return object_; }

 private:
  [[noreturn]] void refuse(std::string_view expected) const;

  c10::IValue object_;
  std::string where_;
};

}  // namespace smp::checkpoint
