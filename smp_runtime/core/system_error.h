// SPDX-License-Identifier: Apache-2.0
// What an errno means, and which limit to raise.
#pragma once

#include <string>

namespace smp {

/// strerror's text; where a limit of the process was reached, the limit and how it is raised.
std::string system_error_text(int error);

}  // namespace smp
