// SPDX-License-Identifier: Apache-2.0
// The classes and functions that a pickle of torch.save may name, and what each makes of its
// arguments: values, of which none runs anything.
#pragma once

#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "smp_runtime/checkpoint/pickle.h"
#include "smp_runtime/core/error.h"

namespace smp::checkpoint {

template <typename... Arguments>
[[noreturn]] void refuse_pickle(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw ConfigError("{}", fmt::format(text, std::forward<Arguments>(arguments)...));
}

/// Throws ConfigError that names what the file holds instead of a value.
[[noreturn]] void refuse_name(std::string_view name);

/// Throws ConfigError for an object of another kind.
template <typename Value>
const Value& value_as(const Pickled& object) {
  const Value* const value = std::get_if<Value>(&object.value);
  if (value == nullptr) refuse_pickle("its pickle has an object of the wrong kind in a place");
  return *value;
}

/// Throws ConfigError unless it is one of those that are known here.
void check_name(std::string_view name);

/// What a class or function of that name makes. Throws ConfigError if it takes no such arguments,
/// and for a tensor that reaches beyond its storage.
PickledValue called(std::string_view name, const PickledTuple& arguments);

/// The storage that `key` refers to. Throws ConfigError for a record that is missing or smaller.
PickledStorage referred_storage(const PickledTuple& key, const RecordBytes& bytes_of);

}  // namespace smp::checkpoint
