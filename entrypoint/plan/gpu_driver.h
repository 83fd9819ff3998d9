// SPDX-License-Identifier: Apache-2.0
// NVIDIA drivers and the CUDA that they run. A container brings CUDA, its host the driver.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace entrypoint {

/// The oldest driver family that runs programs of a CUDA release, e.g. 580 for "13.0"; 0 for
/// unknown releases. NVIDIA's compatibility table: a driver runs every minor release of its CUDA.
int oldest_driver(std::string_view cuda);

/// The family of a driver's version, 580 of "580.65.06"; 0 for another text.
int driver_family(std::string_view version);

/// The warning of a driver that is too old for `torch` ("2.11.0+cu130"); none when it will do or
/// when either is unknown.
std::optional<std::string> driver_warning(std::string_view driver, std::string_view torch);

}  // namespace entrypoint
