// SPDX-License-Identifier: Apache-2.0
// Pickles as torch.save writes them, read as what they describe: nothing of them is run. A file may
// come from anybody, and torch's own reader in C++ believes it.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace smp::checkpoint {

struct Pickled;
using PickledObject = std::shared_ptr<const Pickled>;

struct PickledList {
  enum class Kind { kAny, kInts, kDoubles, kBools, kTensors };
  std::vector<PickledObject> items;
  Kind kind = Kind::kAny;  ///< of all items
};
struct PickledTuple {
  std::vector<PickledObject> items;
};
/// In the order in which they were set; a key, a number or text, may come again.
struct PickledDict {
  std::vector<std::pair<PickledObject, PickledObject>> items;
};
/// A class or function that the file names.
struct PickledName {
  std::string text;
};
/// The bytes of a record as elements.
struct PickledStorage {
  std::string record;
  std::string type;           ///< of elements, as torch's storages are called: "Float"
  std::int64_t elements = 0;  ///< that the record has bytes for
};
/// A view of a storage. Offset and strides count elements.
struct PickledTensor {
  PickledStorage storage;
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  bool requires_grad = false;
  bool is_conjugate = false;  ///< elements are kept as their conjugates
  bool is_negative = false;   ///< elements are kept with the other sign
};

using PickledValue = std::variant<std::monostate, bool, std::int64_t, double, std::complex<double>,
                                  std::string, PickledList, PickledTuple, PickledDict, PickledName,
                                  PickledStorage, PickledTensor>;

/// Several places may hold the same object.
struct Pickled {
  PickledValue value;
  int depth = 0;  ///< 1 for a list of what holds nothing
};

/// Bytes of a record; nothing if there is none.
using RecordBytes = std::function<std::optional<std::int64_t>(const std::string& record)>;

/// The object that a pickle of protocol 2 describes: numbers, texts, tensors, and lists, tuples and
/// dictionaries of them. An OrderedDict is a dictionary without attributes, a torch.Size a tuple.
/// Names and storages stand in tuples only, if at all.
///
/// Whatever the bytes say, tensors lie within their records, nothing holds itself, and nesting is
/// bounded. Throws ConfigError for other bytes, other classes, and sparse and quantized tensors.
PickledObject read_pickle(std::string_view pickle, const RecordBytes& bytes_of);

}  // namespace smp::checkpoint
