// SPDX-License-Identifier: Apache-2.0
// Identities of hosts, which tell the ranks that can share memory.
#pragma once

#include <string>

namespace smp::transport {

/// Equal for two processes exactly when they may take each other for being on one host: same boot
/// of the same kernel, same process numbers, same network. Containers and network namespaces on
/// one machine count as hosts of their own.
/// Throws HostError where that cannot be read.
std::string host_identity();
/// The same of two processes that have one network, and so its addresses; of containers, maybe.
std::string network_identity();

}  // namespace smp::transport
