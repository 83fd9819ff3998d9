// SPDX-License-Identifier: Apache-2.0
// Which ranks can share memory.
#pragma once

#include <string>

#include "smp_runtime/core/host_name.h"

namespace smp::transport {

using smp::host_name;

/// Equal for two processes exactly when they may take each other for being on one host: same boot
/// of the same kernel, same process numbers, same network. Containers and network namespaces on
/// one machine count as hosts of their own.
std::string host_identity();

}  // namespace smp::transport
