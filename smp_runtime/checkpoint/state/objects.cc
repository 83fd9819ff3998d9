// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/objects.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/jit_type.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/csrc/jit/serialization/storage_context.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include "smp_runtime/core/error.h"

namespace smp::checkpoint {
namespace {

/// Torch's reader of pickles knows no torch.Size, of which Python's files have some beside what is
/// asked for here; of the class that is put in its place it makes None.
void replace_sizes(std::string& pickle) {
  constexpr std::string_view kSize = "ctorch\nSize\n";
  constexpr std::string_view kKnown = "ccollections\nOrderedDict\n";
  for (std::size_t at = pickle.find(kSize); at != std::string::npos;
       at = pickle.find(kSize, at + kKnown.size())) {
    pickle.replace(at, kSize.size(), kKnown);
  }
}

c10::IValue unpickled(caffe2::serialize::PyTorchStreamReader& reader) {
  const auto [data, size] = reader.getRecord("data.pkl");
  std::string pickle(static_cast<const char*>(data.get()), size);
  replace_sizes(pickle);
  std::size_t position = 0;
  torch::jit::Unpickler unpickler(
      [&](char* buffer, std::size_t length) -> std::size_t {
        const std::size_t given = std::min(length, pickle.size() - position);
        std::memcpy(buffer, pickle.data() + position, given);
        position += given;
        return given;
      },
      /*type_resolver=*/nullptr, /*obj_loader=*/nullptr,
      [&](const std::string& name) { return std::get<0>(reader.getRecord("data/" + name)); },
      c10::Device(at::kCPU), /*use_storage_device=*/false, torch::jit::Unpickler::defaultTypeParser,
      std::make_shared<torch::jit::DeserializationStorageContext>());
  unpickler.set_version(reader.version());
  return unpickler.parse_ivalue();
}

}  // namespace

FileDigest write_object(const std::filesystem::path& path, const c10::IValue& object) {
  AtomicFile file(path);
  std::exception_ptr failure;  // which must not pass through the archive's C code
  try {
    caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, std::size_t size) {
      try {
        file.write(std::span(static_cast<const std::byte*>(data), size));
      } catch (...) {
        failure = std::current_exception();
        return std::size_t{0};
      }
      return size;
    });
    std::string pickle;
    // Without tags of types, which torch.load refuses unless told to trust the file.
    torch::jit::Pickler pickler(
        [&](const char* data, std::size_t size) { pickle.append(data, size); }, nullptr, nullptr,
        nullptr, nullptr, /*tag_aggregates=*/false);
    pickler.protocol();
    pickler.pushIValue(object);
    pickler.stop();
    archive.writeRecord("data.pkl", pickle.data(), pickle.size());
    std::size_t number = 0;
    for (const at::Tensor& tensor : pickler.tensorData()) {
      const auto data = torch::jit::getWriteableTensorData(tensor);
      archive.writeRecord(fmt::format("data/{}", number++), data.data(), data.sizeInBytes());
    }
    archive.writeEndOfFile();
  } catch (const c10::Error& error) {
    if (failure) std::rethrow_exception(failure);
    throw HostError("cannot write {}: {}", path.string(), error.what_without_backtrace());
  }
  return file.commit();
}

c10::IValue read_object(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) {
    throw ConfigError("there is no file {}", path.string());
  }
  try {
    caffe2::serialize::PyTorchStreamReader reader(path.string());
    return unpickled(reader);
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
  if (!object_.isScalar()) refuse("a number");
  return object_.toScalar().toDouble();
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
