// SPDX-License-Identifier: Apache-2.0
// Pickles by hand: what torch.save would not write, too.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace smp::checkpoint {

using std::string_literals::operator""s;

template <typename Number>
std::string bytes_of_number(Number number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

inline std::string whole(std::int64_t number) {
  return "\x8a\x08" + bytes_of_number(number);  // LONG1
}

inline std::string words(std::string_view text) {
  return "X" + bytes_of_number(static_cast<std::uint32_t>(text.size())) + std::string(text);
}

inline std::string tuple(const std::vector<std::string>& items) {
  std::string text = "(";
  for (const std::string& item : items) text += item;
  return text + "t";
}

inline std::string wholes(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> items;
  for (const std::int64_t number : numbers) items.push_back(whole(number));
  return tuple(items);
}

inline std::string name(std::string_view module, std::string_view text) {
  return "c" + std::string(module) + "\n" + std::string(text) + "\n";
}

/// A storage of `elements` floats in the record data/`record`.
inline std::string storage(std::int64_t elements, std::string_view record = "0",
                           std::string_view type = "FloatStorage") {
  return tuple({words("storage"), name("torch", type), words(record), words("cpu"),
                whole(elements)}) +
         "Q";
}

struct TensorOf {
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes = {4};
  std::vector<std::int64_t> strides = {1};
  std::string storage_text = storage(4);
};

inline std::string tensor(const TensorOf& of) {
  return name("torch._utils", "_rebuild_tensor_v2") +
         tuple({of.storage_text, whole(of.offset), wholes(of.sizes), wholes(of.strides), "\x89",
                name("collections", "OrderedDict") + ")R"}) +
         "R";
}

/// A whole pickle of that object.
inline std::string pickle(std::string_view object) {
  return "\x80\x02" + std::string(object) + ".";
}

}  // namespace smp::checkpoint
