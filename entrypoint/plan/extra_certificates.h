// SPDX-License-Identifier: Apache-2.0
// Certificate authorities of a company that the job trusts besides the machine's own.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrypoint/config/process_environment.h"
#include "opt_ml_layout/paths.h"

namespace entrypoint {

struct ExtraCertificates {
  std::filesystem::path system;  ///< PEM file of those that are trusted anyway
  std::filesystem::path extra;   ///< PEM file of the job's, SMP_EXTRA_CA_FILE
  std::filesystem::path joined;  ///< where both go before anything is fetched

  /// Names of the variables that are to say `joined`: by them Python, requests, curl, botocore and
  /// pip find a PEM file.
  std::vector<std::string> variables;
  /// Variables of this kind that the user has set to another file; they stay.
  std::vector<std::string> kept;
};

/// Pure; none when the environment names no file.
std::optional<ExtraCertificates> plan_certificates(const EnvironmentMap& environment,
                                                   const opt_ml::Layout& layout);

}  // namespace entrypoint
