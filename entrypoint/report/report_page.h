// SPDX-License-Identifier: Apache-2.0
// The page: one HTML file that asks for nothing from anywhere.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace entrypoint::report {

/// Markup in the report's texts stays text.
std::string report_page(const nlohmann::json& report);

}  // namespace entrypoint::report
