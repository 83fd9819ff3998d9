// SPDX-License-Identifier: Apache-2.0
// The name of this host.
#pragma once

#include <string>

namespace smp {

/// This host's own name for itself; for people and for names of files.
std::string host_name();

}  // namespace smp
