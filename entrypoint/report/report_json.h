// SPDX-License-Identifier: Apache-2.0
// The content of the page, as one JSON object that the page also carries for other programs to take
// out (docs/reference/file_formats.md). Pure.
#pragma once

#include <span>

#include <nlohmann/json.hpp>

#include "entrypoint/report/job_numbers.h"
#include "entrypoint/report/rules.h"

namespace entrypoint::report {

nlohmann::json report_json(const JobRecord& job, const JobNumbers& numbers,
                           std::span<const Finding> findings);

}  // namespace entrypoint::report
