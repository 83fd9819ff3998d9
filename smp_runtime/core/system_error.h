// SPDX-License-Identifier: Apache-2.0
// Texts of errnos, with the limit to raise where one was reached.
#pragma once

#include <string>

namespace smp {

/// strerror's text; where a limit of the process was reached, the limit and how it is raised.
std::string system_error_text(int error);

}  // namespace smp
