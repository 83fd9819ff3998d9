// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/objects.h"

#include <cmath>
#include <complex>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include "smp_runtime/checkpoint/pickle.h"
#include "smp_runtime/checkpoint/state/archive_file.h"
#include "smp_runtime/core/error.h"

namespace smp::checkpoint {
namespace {

at::ScalarType scalar_type(const std::string& name) {
  for (int number = 0; number < static_cast<int>(at::ScalarType::NumOptions); ++number) {
    const auto type = static_cast<at::ScalarType>(number);
    if (name == toString(type)) return type;
  }
  throw ConfigError("it has elements of the unknown type {}", name);
}

c10::TypePtr item_type(PickledList::Kind kind) {
  switch (kind) {
    case PickledList::Kind::kInts:
      return c10::IntType::get();
    case PickledList::Kind::kDoubles:
      return c10::FloatType::get();
    case PickledList::Kind::kBools:
      return c10::BoolType::get();
    case PickledList::Kind::kTensors:
      return c10::TensorType::get();
    case PickledList::Kind::kAny:
      break;
  }
  return c10::AnyType::get();
}

/// Objects of a pickle, on the CPU. What several places hold stays one object, and so do storages.
class ObjectMaker {
 public:
  explicit ObjectMaker(caffe2::serialize::PyTorchStreamReader& archive) : archive_(archive) {}

  c10::IValue make(const PickledObject& pickled) {
    if (const auto known = made_.find(pickled.get()); known != made_.end()) return known->second;
    return made_[pickled.get()] = std::visit(
               [this](const auto& value) { return this->object_of(value); }, pickled->value);
  }

 private:
  static c10::IValue object_of(std::monostate) { return {}; }
  static c10::IValue object_of(bool value) { return value; }
  static c10::IValue object_of(std::int64_t value) { return value; }
  static c10::IValue object_of(double value) { return value; }
  static c10::IValue object_of(std::complex<double> value) { return c10::complex<double>(value); }
  static c10::IValue object_of(const std::string& value) { return value; }

  c10::IValue object_of(const PickledList& pickled) {
    c10::impl::GenericList list(item_type(pickled.kind));
    for (const PickledObject& item : pickled.items) list.push_back(make(item));
    return list;
  }

  c10::IValue object_of(const PickledTuple& pickled) {
    std::vector<c10::IValue> items;
    for (const PickledObject& item : pickled.items) items.push_back(make(item));
    return c10::ivalue::Tuple::create(std::move(items));
  }

  c10::IValue object_of(const PickledDict& pickled) {
    c10::impl::GenericDict dictionary(c10::AnyType::get(), c10::AnyType::get());
    for (const auto& [key, value] : pickled.items) {
      dictionary.insert_or_assign(make(key), make(value));
    }
    return dictionary;
  }

  c10::IValue object_of(const PickledTensor& pickled) {
    const at::Tensor tensor = at::empty({0}, at::dtype(scalar_type(pickled.storage.type)));
    tensor.set_(storage_of(pickled.storage), pickled.offset, pickled.sizes, pickled.strides);
    if (pickled.is_conjugate) tensor._set_conj(true);
    if (pickled.is_negative) tensor._set_neg(true);
    return tensor.set_requires_grad(pickled.requires_grad);
  }

  // What makes tensors is nothing by itself.
  static c10::IValue object_of(const PickledName& pickled) { return pickled.text; }
  static c10::IValue object_of(const PickledStorage& pickled) { return pickled.record; }

  c10::Storage storage_of(const PickledStorage& pickled) {
    if (const auto known = storages_.find(pickled.record); known != storages_.end()) {
      return known->second;
    }
    at::DataPtr data;
    std::size_t bytes = 0;
    if (pickled.elements > 0) std::tie(data, bytes) = archive_.getRecord(pickled.record);
    const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data));
    if (bytes > 0) storages_.emplace(pickled.record, storage);
    return storage;
  }

  caffe2::serialize::PyTorchStreamReader& archive_;
  std::unordered_map<const Pickled*, c10::IValue> made_;
  std::map<std::string, c10::Storage> storages_;
};

c10::IValue unpickled(const std::filesystem::path& path) {
  caffe2::serialize::PyTorchStreamReader archive(path.string());
  const auto limit = std::filesystem::file_size(path);  // torch.save does not compress
  const auto bytes_of = [&](const std::string& record) -> std::optional<std::int64_t> {
    if (!archive.hasRecord(record)) return std::nullopt;
    const std::size_t bytes = archive.getRecordSize(record);
    if (bytes > limit) {
      throw ConfigError("its record {} has {} bytes; expected at most {}, as the file has", record,
                        bytes, limit);
    }
    return static_cast<std::int64_t>(bytes);
  };
  const auto text_of = [&](const char* record) -> std::string {
    if (!bytes_of(record)) throw ConfigError("it has no record {}", record);
    const auto [data, bytes] = archive.getRecord(record);
    return {static_cast<const char*>(data.get()), bytes};
  };
  if (archive.hasRecord("byteorder") && text_of("byteorder") != "little") {
    throw ConfigError("its numbers begin with their highest bytes; save it on a machine like this");
  }
  return ObjectMaker(archive).make(read_pickle(text_of("data.pkl"), bytes_of));
}

}  // namespace

void with_pickled(const c10::IValue& object,
                  const std::function<void(std::string_view pickle, Storages storages)>& use) {
  std::string pickle;
  // Without tags of types, which torch.load refuses unless told to trust the file.
  torch::jit::Pickler pickler(
      [&](const char* data, std::size_t size) { pickle.append(data, size); }, nullptr, nullptr,
      nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(object);
  pickler.stop();
  std::vector<torch::jit::WriteableTensorData> tensors;
  std::vector<at::Tensor> storages;
  for (const at::Tensor& tensor : pickler.tensorData()) {
    const auto& data = tensors.emplace_back(torch::jit::getWriteableTensorData(tensor));
    storages.push_back(at::from_blob(const_cast<char*>(data.data()),  // read alone
                                     {static_cast<std::int64_t>(data.sizeInBytes())},
                                     at::TensorOptions(at::kByte)));
  }
  use(pickle, storages);
}

FileDigest write_object(const std::filesystem::path& path, const c10::IValue& object) {
  try {
    FileDigest digest;
    with_pickled(object, [&](std::string_view pickle, Storages storages) {
      digest = write_archive(path, pickle, storages);
    });
    return digest;
  } catch (const c10::Error& error) {
    throw HostError("cannot write {}: {}", path.string(), error.what_without_backtrace());
  }
}

c10::IValue read_object(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw ConfigError("there is no file {}", path.string());
  }
  try {
    return unpickled(path);
  } catch (const ConfigError& error) {
    throw ConfigError("cannot read {}: {}", path.string(), error.what());
  } catch (const c10::Error& error) {
    throw ConfigError("cannot read {}: {}", path.string(), error.what_without_backtrace());
  }
}

ObjectBuilder::ObjectBuilder() : dictionary_(c10::AnyType::get(), c10::AnyType::get()) {}

c10::impl::GenericList new_list() { return c10::impl::GenericList(c10::AnyType::get()); }

void ObjectReader::refuse(std::string_view expected) const {
  throw ConfigError("{} is {}; expected {}", where_, object_.tagKind(), expected);
}

bool ObjectReader::has(std::string_view key) const {
  return object_.isGenericDict() && object_.toGenericDict().contains(std::string(key));
}

ObjectReader ObjectReader::at(std::string_view key) const {
  if (!has(key)) {
    if (!object_.isGenericDict()) refuse("a dictionary");
    throw ConfigError("{} has no \"{}\"", where_, key);
  }
  return {object_.toGenericDict().at(std::string(key)), fmt::format("{}: \"{}\"", where_, key)};
}

std::vector<std::pair<std::string, ObjectReader>> ObjectReader::items() const {
  if (!object_.isGenericDict()) refuse("a dictionary");
  std::vector<std::pair<std::string, ObjectReader>> all;
  for (const auto& entry : object_.toGenericDict()) {
    if (!entry.key().isInt() && !entry.key().isString()) {
      refuse("a dictionary of texts or whole numbers");
    }
    const std::string key =
        entry.key().isInt() ? std::to_string(entry.key().toInt()) : entry.key().toStringRef();
    all.emplace_back(key, ObjectReader(entry.value(), fmt::format("{}: \"{}\"", where_, key)));
  }
  return all;
}

std::vector<ObjectReader> ObjectReader::elements() const {
  std::vector<ObjectReader> all;
  const auto add = [&](const c10::IValue& value) {
    all.emplace_back(value, fmt::format("{}[{}]", where_, all.size()));
  };
  if (object_.isTuple()) {
    for (const c10::IValue& value : object_.toTupleRef().elements()) add(value);
  } else if (object_.isList()) {
    for (const c10::IValue& value : object_.toListRef()) add(value);
  } else {
    refuse("a list");
  }
  return all;
}

at::Tensor ObjectReader::tensor() const {
  if (!object_.isTensor()) refuse("a tensor");
  return object_.toTensor();
}

bool ObjectReader::is_number() const {
  return object_.isScalar() || (object_.isTensor() && object_.toTensor().numel() == 1);
}

double ObjectReader::number() const {
  if (object_.isTensor() && object_.toTensor().numel() == 1) {
    return object_.toTensor().item<double>();
  }
  if (!object_.isScalar() || object_.isComplexDouble()) refuse("a number");
  return object_.toScalar().toDouble();
}

std::int64_t ObjectReader::integer() const {
  if (object_.isInt()) return object_.toInt();
  constexpr double kEnd = 0x1p63;  // the first whole number that does not fit
  const double value = number();
  if (!(value >= -kEnd && value < kEnd) || value != std::trunc(value)) refuse("a whole number");
  return static_cast<std::int64_t>(value);
}

bool ObjectReader::flag() const {
  if (!object_.isBool()) refuse("True or False");
  return object_.toBool();
}

std::string ObjectReader::text() const {
  if (!object_.isString()) refuse("a text");
  return object_.toStringRef();
}

std::vector<std::int64_t> ObjectReader::integers() const {
  std::vector<std::int64_t> all;
  for (const ObjectReader& element : elements()) all.push_back(element.integer());
  return all;
}

}  // namespace smp::checkpoint
