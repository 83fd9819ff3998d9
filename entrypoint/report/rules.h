// SPDX-License-Identifier: Apache-2.0
// Rules on the bounds of a job, in words: each looks at the job's numbers, and says what it found,
// how much of the time it costs, and what to change. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/report/job_numbers.h"

namespace entrypoint::report {

struct Finding {
  std::string_view rule;  ///< its name in rules()
  double cost = 0;        ///< share of the job's time that it explains, 0 to 1; above 1: it failed
  std::string text;       ///< what was found, with its number
  std::string advice;     ///< what to change
};

struct Rule {
  std::string_view name;
  std::string_view finds;   ///< for the documentation
  double threshold;         ///< from which on it speaks; its unit is in `finds`
  std::string_view source;  ///< where the threshold comes from
  bool (*judge)(const JobRecord& job, const JobNumbers& numbers, const Rule& rule,
                Finding& finding);
};

/// All of them, for the documentation, too.
std::span<const Rule> rules();

/// Findings, the one that bounds the job most first; never empty: a job that is fine is told so.
std::vector<Finding> judge(const JobRecord& job, const JobNumbers& numbers);

}  // namespace entrypoint::report
