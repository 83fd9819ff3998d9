// SPDX-License-Identifier: Apache-2.0
// Whatever a pickle says: reading it ends with an object, which can be walked and destroyed, or
// with a ConfigError.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "smp_runtime/checkpoint/pickle.h"
#include "smp_runtime/core/error.h"
#include "tests/fuzz/target.h"

namespace {

constexpr std::int64_t kRecordBytes = 64;

/// As deep as objects are; each of a dictionary, list or tuple once, as a reader would.
void walk(const smp::checkpoint::Pickled& object, int& steps) {
  if (--steps < 0) return;
  if (const auto* list = std::get_if<smp::checkpoint::PickledList>(&object.value)) {
    for (const auto& item : list->items) walk(*item, steps);
  } else if (const auto* tuple = std::get_if<smp::checkpoint::PickledTuple>(&object.value)) {
    for (const auto& item : tuple->items) walk(*item, steps);
  } else if (const auto* dict = std::get_if<smp::checkpoint::PickledDict>(&object.value)) {
    for (const auto& [key, value] : dict->items) walk(*value, steps);
  } else if (const auto* tensor = std::get_if<smp::checkpoint::PickledTensor>(&object.value)) {
    fuzz::require(tensor->offset >= 0 && tensor->offset <= tensor->storage.elements &&
                  tensor->storage.elements <= kRecordBytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const std::string_view pickle(reinterpret_cast<const char*>(bytes), count);
  const auto bytes_of = [](const std::string& record) -> std::optional<std::int64_t> {
    if (record == "data/none") return std::nullopt;
    return kRecordBytes;
  };
  try {
    int steps = 100'000;
    walk(*smp::checkpoint::read_pickle(pickle, bytes_of), steps);
  } catch (const smp::ConfigError&) {
  }
  return 0;
}
