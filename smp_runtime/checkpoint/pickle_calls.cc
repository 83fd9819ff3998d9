// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/pickle_calls.h"

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/ranges.h>

namespace smp::checkpoint {
namespace {

// Classes and functions that a pickle may call.
constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::string_view kSize = "torch.Size";
constexpr std::string_view kTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kComplex = "builtins.complex";
constexpr std::string_view kOldComplex = "__builtin__.complex";
constexpr std::string_view kIntList = "torch.jit._pickle.build_intlist";
constexpr std::string_view kDoubleList = "torch.jit._pickle.build_doublelist";
constexpr std::string_view kBoolList = "torch.jit._pickle.build_boollist";
constexpr std::string_view kTensorList = "torch.jit._pickle.build_tensorlist";
constexpr std::array kCallable{kOrderedDict, kSize,       kTensor,   kComplex,   kOldComplex,
                               kIntList,     kDoubleList, kBoolList, kTensorList};

/// Of torch's storages; 0 for unknown types.
std::int64_t element_bytes(std::string_view type) {
  using Known = std::pair<std::string_view, std::int64_t>;
  constexpr std::array kKnown{
      Known{"Byte", 1}, Known{"Char", 1},     Known{"Short", 2},        Known{"Int", 4},
      Known{"Long", 8}, Known{"Half", 2},     Known{"Float", 4},        Known{"Double", 8},
      Known{"Bool", 1}, Known{"BFloat16", 2}, Known{"ComplexFloat", 8}, Known{"ComplexDouble", 16}};
  const auto found = std::ranges::find(kKnown, type, &Known::first);
  return found == kKnown.end() ? 0 : found->second;
}

/// "Float" of "torch.FloatStorage"; empty for other names.
std::string_view storage_type(std::string_view name) {
  constexpr std::string_view kBegin = "torch.";
  constexpr std::string_view kEnd = "Storage";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return {};
  return name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
}

/// How many elements of its storage a tensor reaches; nothing if that is no number of them.
std::optional<std::int64_t> reach_of(const PickledTensor& tensor) {
  if (tensor.offset < 0 || tensor.sizes.size() != tensor.strides.size()) return std::nullopt;
  std::int64_t last = tensor.offset;
  std::int64_t elements = 1;
  bool overflows = false;
  for (std::size_t dim = 0; dim < tensor.sizes.size(); ++dim) {
    const std::int64_t size = tensor.sizes[dim];
    const std::int64_t stride = tensor.strides[dim];
    if (size < 0 || stride < 0) return std::nullopt;
    std::int64_t length = 0;
    overflows |= __builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements);
    overflows |= __builtin_mul_overflow(std::max<std::int64_t>(size - 1, 0), stride, &length);
    overflows |= __builtin_add_overflow(last, length, &last);
  }
  if (overflows) return std::nullopt;
  if (std::ranges::find(tensor.sizes, 0) != tensor.sizes.end()) return tensor.offset;
  if (__builtin_add_overflow(last, 1, &last)) return std::nullopt;
  return last;
}

void check_reach(const PickledTensor& tensor) {
  const std::optional<std::int64_t> reach = reach_of(tensor);
  if (reach && *reach <= tensor.storage.elements) return;
  refuse_pickle(
      "a tensor of record {} has sizes [{}], strides [{}] and offset {}: expected a view "
      "of at most {} elements, which the record has",
      tensor.storage.record, fmt::join(tensor.sizes, ", "), fmt::join(tensor.strides, ", "),
      tensor.offset, tensor.storage.elements);
}

template <typename Value>
const Value& argument(const PickledTuple& arguments, std::size_t number) {
  if (number >= arguments.items.size()) {
    refuse_pickle("its pickle calls a function with too few arguments");
  }
  return value_as<Value>(*arguments.items[number]);
}

std::vector<std::int64_t> integers(const PickledTuple& tuple) {
  std::vector<std::int64_t> all;
  for (const PickledObject& item : tuple.items) all.push_back(value_as<std::int64_t>(*item));
  return all;
}

PickledTensor tensor_of(const PickledTuple& arguments) {
  PickledTensor tensor{.storage = argument<PickledStorage>(arguments, 0),
                       .offset = argument<std::int64_t>(arguments, 1),
                       .sizes = integers(argument<PickledTuple>(arguments, 2)),
                       .strides = integers(argument<PickledTuple>(arguments, 3)),
                       .requires_grad = argument<bool>(arguments, 4)};
  constexpr std::size_t kMarks = 6;  // behind hooks, which are empty
  if (arguments.items.size() > kMarks) {
    for (const auto& [key, value] : argument<PickledDict>(arguments, kMarks).items) {
      const std::string& mark = value_as<std::string>(*key);
      if (mark != "conj" && mark != "neg") refuse_pickle("a tensor has the unknown mark {}", mark);
      (mark == "conj" ? tensor.is_conjugate : tensor.is_negative) = value_as<bool>(*value);
    }
  }
  check_reach(tensor);
  return tensor;
}

/// A list whose items are all of one kind, as C++ writes it.
template <typename Item>
PickledList list_of(const PickledTuple& arguments, PickledList::Kind kind) {
  PickledList list = argument<PickledList>(arguments, 0);
  for (const PickledObject& item : list.items) value_as<Item>(*item);
  list.kind = kind;
  return list;
}

}  // namespace

void refuse_name(std::string_view name) {
  refuse_pickle("it holds {}; expected numbers, texts, tensors, and lists and dictionaries of them",
                name);
}

void check_name(std::string_view name) {
  if (std::ranges::find(kCallable, name) != kCallable.end()) return;
  if (element_bytes(storage_type(name)) == 0) refuse_name(name);
}

PickledValue called(std::string_view name, const PickledTuple& arguments) {
  if (name == kOrderedDict && arguments.items.empty()) return PickledDict();
  if (name == kSize) return argument<PickledTuple>(arguments, 0);
  if (name == kTensor) return tensor_of(arguments);
  if (name == kComplex || name == kOldComplex) {
    return std::complex(argument<double>(arguments, 0), argument<double>(arguments, 1));
  }
  using Kind = PickledList::Kind;
  if (name == kIntList) return list_of<std::int64_t>(arguments, Kind::kInts);
  if (name == kDoubleList) return list_of<double>(arguments, Kind::kDoubles);
  if (name == kBoolList) return list_of<bool>(arguments, Kind::kBools);
  if (name == kTensorList) return list_of<PickledTensor>(arguments, Kind::kTensors);
  refuse_name(name);
}

PickledStorage referred_storage(const PickledTuple& key, const RecordBytes& bytes_of) {
  if (argument<std::string>(key, 0) != "storage") {
    refuse_pickle("its pickle refers to something outside of it that is no storage");
  }
  const std::string& name = argument<PickledName>(key, 1).text;
  PickledStorage storage{.record = "data/" + argument<std::string>(key, 2),
                         .type = std::string(storage_type(name)),
                         .elements = argument<std::int64_t>(key, 4)};
  const std::int64_t each = element_bytes(storage.type);
  if (each == 0) refuse_name(name);
  const std::optional<std::int64_t> bytes = storage.elements == 0 ? 0 : bytes_of(storage.record);
  if (!bytes) refuse_pickle("its record {} is missing", storage.record);
  if (storage.elements < 0 || storage.elements > *bytes / each) {
    refuse_pickle("its record {} has {} bytes; expected {} elements of {} bytes", storage.record,
                  *bytes, storage.elements, each);
  }
  return storage;
}

}  // namespace smp::checkpoint
