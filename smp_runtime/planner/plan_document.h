// SPDX-License-Identifier: Apache-2.0
// A question to the planner and its answer as JSON (docs/reference/file_formats.md): what the
// profiler of a script writes, and what `train --suggest --json` prints.
#pragma once

#include <string>
#include <string_view>

namespace smp::planner {

/// Answers `question`, an object with "profile", "machines" and what the search is to hold fixed.
/// With "run", what a report has of an earlier job of the script, speeds are fitted to that first
/// (calibration.h). With "explain" the answer is on that composition alone. Pure. Throws
/// ConfigError, naming the key, for a question that is none, and for a composition or a run that
/// rules refuse.
std::string answer(std::string_view question);

/// The machines of `hosts` instances of a type of the table, as a question has them. Throws as
/// machines_of().
std::string machines_document(std::string_view type, int hosts);

}  // namespace smp::planner
