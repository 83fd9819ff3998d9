// SPDX-License-Identifier: Apache-2.0
// The name of this host.
#pragma once

#include <string>

namespace smp {

/// What this host calls itself; for people and for names of files.
std::string host_name();

}  // namespace smp
