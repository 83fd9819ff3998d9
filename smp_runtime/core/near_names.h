// SPDX-License-Identifier: Apache-2.0
// Misspelled names: which of the known ones may be meant.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace smp {

/// Names of `known` that are close to `name`, nearest first, at most three: for "did you mean". A
/// name is close if it is a few edits away, or longer with `name` as a part. The result views into
/// `known`. O(known x length^2) time.
std::vector<std::string_view> near_names(std::string_view name,
                                         std::span<const std::string_view> known);

/// One sentence for each variable in `given` that begins with `prefix` and is not in `known`, in
/// the order of `given`: "SMP_PROGRES is not known; did you mean SMP_PROGRESS?". All of `known`
/// begin with `prefix`.
std::vector<std::string> describe_unknown_variables(std::span<const std::string_view> given,
                                                    std::string_view prefix,
                                                    std::span<const std::string_view> known);

}  // namespace smp
