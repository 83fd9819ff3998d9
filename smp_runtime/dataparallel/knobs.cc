// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/dataparallel/knobs.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "smp_runtime/core/error.h"

namespace smp::dataparallel {
namespace {

size_t bytes_knob(const char* variable, size_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  constexpr size_t kMost = size_t{1} << 30;
  const std::string_view view(text);
  size_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value == 0 || value > kMost) {
    throw ConfigError("{} is \"{}\"; expected a number of bytes from 1 to {}", variable, view,
                      kMost);
  }
  return value;
}

}  // namespace

collectives::Tuning tuning_from_environment() {
  const collectives::Tuning defaults;
  return {.slot_bytes = bytes_knob("SMDDP_SLOT_BYTES", defaults.slot_bytes),
          .small_bytes = bytes_knob("SMDDP_SMALL_BYTES", defaults.small_bytes)};
}

}  // namespace smp::dataparallel
