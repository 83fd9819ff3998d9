// SPDX-License-Identifier: Apache-2.0
// Plain values in messages. All ranks of a job run the same binary on the same kind of machine:
// values travel as they are in memory, padding included.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "smp_runtime/core/error.h"

namespace smp {

template <typename T>
void append_plain(std::string& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
void append_plain_values(std::string& bytes, std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

/// Removes a value from the front of `bytes`. Throws InternalError if they end before.
template <typename T>
[[nodiscard]] T take_plain(std::string_view& bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  SMP_CHECK(bytes.size() >= sizeof(T), "{} bytes for a value of {}", bytes.size(), sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

/// The same for `count` values.
template <typename T>
[[nodiscard]] std::vector<T> take_plain_values(std::string_view& bytes, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  SMP_CHECK(bytes.size() / sizeof(T) >= count, "{} bytes for {} values of {}", bytes.size(), count,
            sizeof(T));
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
  return values;
}

/// Puts `text` into a field of a plain structure, which holds zeros so far. Throws InternalError if
/// it does not fit.
template <size_t N>
void put(std::array<char, N>& field, const std::string& text) {
  SMP_CHECK(text.size() < N, "{} has more than {} characters", text, N - 1);
  std::copy(text.begin(), text.end(), field.begin());
}

}  // namespace smp
