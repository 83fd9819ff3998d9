// SPDX-License-Identifier: Apache-2.0
// Texts as fields of plain structures, which travel between processes as they are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "smp_runtime/core/error.h"

namespace smp {

/// Throws InternalError if it does not fit.
template <size_t N>
void put(std::array<char, N>& field, const std::string& text) {
  SMP_CHECK(text.size() < N, "{} has more than {} characters", text, N - 1);
  std::copy(text.begin(), text.end(), field.begin());
}

}  // namespace smp
