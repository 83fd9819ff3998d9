// SPDX-License-Identifier: Apache-2.0
// The files ~/.aws/credentials and ~/.aws/config.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "smp_runtime/core/variables.h"

namespace entrypoint {

using ProfileSettings = std::map<std::string, std::string, std::less<>>;

/// The settings of one profile in the text of such a file: sections are `[name]`, in the config
/// file also `[profile name]`; nested settings (indented) do not count. Pure.
ProfileSettings parse_profile(std::string_view text, std::string_view profile);

/// Name of the profile in use: AWS_PROFILE, AWS_DEFAULT_PROFILE, else "default".
std::string profile_name(const smp::Variables& environment);

/// The settings of both files for the profile, those of the credentials file first.
/// AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name other files. Files that are not there count
/// as empty.
ProfileSettings read_profile(const smp::Variables& environment);

}  // namespace entrypoint
