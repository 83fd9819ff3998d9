// SPDX-License-Identifier: Apache-2.0
// A file of a checkpoint, or the pickle in one: refused with a ConfigError, or an object of which
// no tensor reaches beyond its memory. An input that is no archive is put into one, as the
// checksums of an archive let nothing else through.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <caffe2/serialize/inline_container.h>
#include <stdlib.h>

#include "smp_runtime/checkpoint/state/objects.h"
#include "smp_runtime/core/error.h"
#include "tests/fuzz/target.h"

// Null unless the program has an AddressSanitizer.
extern "C" void* __asan_region_is_poisoned(void* begin, std::size_t size) __attribute__((weak));

// Torch's reader of archives leaves some bytes behind where it refuses one.
extern "C" const char* __lsan_default_suppressions() { return "leak:libtorch_cpu.so\n"; }

namespace {

namespace fs = std::filesystem;
using namespace smp::checkpoint;  // a program, not a header
using fuzz::require;

/// A file of this process, in memory where there is /dev/shm.
class File {
 public:
  File() {
    std::string name = fs::exists("/dev/shm") ? "/dev/shm/object-XXXXXX" : "/tmp/object-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
  }
  ~File() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] fs::path path() const { return folder_ / "object.pt"; }

 private:
  fs::path folder_;
};

constexpr std::size_t kStorageBytes = 32;

void write_archive(const fs::path& path, std::string_view pickle) {
  caffe2::serialize::PyTorchStreamWriter archive(path.string());
  archive.writeRecord("data.pkl", pickle.data(), pickle.size());
  const std::string storage(kStorageBytes, 's');
  archive.writeRecord("data/0", storage.data(), storage.size());
  archive.writeEndOfFile();
}

void require_memory(const at::Tensor& tensor) {
  const at::Storage& storage = tensor.storage();
  const auto* data = static_cast<const std::byte*>(storage.data());
  if (tensor.numel() > 0) {
    std::int64_t last = tensor.storage_offset();
    require(last >= 0);
    for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
      require(tensor.stride(dim) >= 0);
      last += (tensor.size(dim) - 1) * tensor.stride(dim);
    }
    require((static_cast<std::size_t>(last) + 1) * tensor.itemsize() <= storage.nbytes());
  }
  if (__asan_region_is_poisoned == nullptr || storage.nbytes() == 0) return;
  require(__asan_region_is_poisoned(const_cast<std::byte*>(data), storage.nbytes()) == nullptr);
}

void walk(const ObjectReader& object) {
  try {
    if (object.is_tensor()) {
      require_memory(object.tensor());
    } else if (object.is_list()) {
      for (const ObjectReader& element : object.elements()) walk(element);
    } else if (object.object().isGenericDict()) {
      for (const auto& [key, value] : object.items()) walk(value);
    }
    if (object.is_number()) static_cast<void>(object.number());
  } catch (const smp::ConfigError&) {
  }
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string pickle_of(const fs::path& path) {
  caffe2::serialize::PyTorchStreamReader reader(path.string());
  const auto [data, size] = reader.getRecord("data.pkl");
  return {static_cast<const char*>(data.get()), size};
}

}  // namespace

std::map<std::string, std::string> fuzz::made_inputs() {
  const File file;
  ObjectBuilder inner;
  inner.set("exp_avg", at::arange(8, at::kFloat)).set("step", 3);
  ObjectBuilder builder;
  builder.set("weight", at::arange(8, at::kFloat).reshape({2, 4}).narrow(1, 1, 2))
      .set("state", inner.built())
      .set("groups", list_of(std::vector<c10::IValue>{1, 0.5, true, "text"}));
  write_object(file.path(), builder.built());
  std::map<std::string, std::string> inputs{{"file", read(file.path())}};
  const std::string pickle = pickle_of(file.path());
  inputs["pickle"] = pickle;
  inputs["cut"] = pickle.substr(0, pickle.size() / 2);
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  static const File file;
  const std::string input = fuzz::text_of(bytes, count);
  if (input.starts_with("PK")) {
    std::ofstream(file.path(), std::ios::binary) << input;
  } else {
    write_archive(file.path(), input);
  }
  try {
    walk(ObjectReader(read_object(file.path()), "object.pt"));
  } catch (const smp::ConfigError&) {
  }
  return 0;
}
