// SPDX-License-Identifier: Apache-2.0
// What a user may set by environment: the one table of it.
//
//   variable               default  meaning
//   SMDDP_SLOT_BYTES        131072  of shared memory for data on its way, four for each rank
//   SMDDP_WIRE_SLOT_BYTES   262144  the same in groups over several hosts, twelve for each rank
//   SMDDP_SMALL_BYTES        32768  up to here a collective is one step of all ranks
//   SMDDP_FABRIC_PROVIDER           of libfabric between hosts, e.g. efa or tcp; else that of
//                                   FI_PROVIDER, else efa where a device is, else one over TCP
//   SMDDP_INTERFACE                 to other hosts, e.g. eth0; else the one to MASTER_ADDR
//   SMDDP_GPU_ROUTE           auto  of tensors of GPUs: host, nccl-inside or nccl (gpu_route.h) for
//                                   all sizes; auto takes the cheapest for each
//   SM_LOG_LEVEL                20  as Python's levels; 10 tells that choice
//
// Slots are as large as the group needs, if that is more: 64 bytes for each rank, 8192 over several
// hosts.
//
// libfabric has variables of its own. One has another default here, which Python sets before
// libfabric starts: FI_OFI_RXM_EAGER_LIMIT, 262144 (backend_registration.py).
#pragma once

#include <optional>

#include "smp_runtime/collectives/communicator.h"
#include "smp_runtime/collectives/gpu_route.h"
#include "smp_runtime/core/log.h"

namespace smp::dataparallel {

struct Knobs {
  collectives::Tuning tuning;
  collectives::Network network;
  std::optional<collectives::GpuRoute> gpu_route;
  bool nccl_has_plugin = false;  ///< NCCL_NET_PLUGIN names one, as `train` sets it for EFA
  log::Level log_level = log::Level::kInfo;
};

/// Reads the environment; the only place of the backend that does.
/// Throws ConfigError for a size that is no positive number of at most 1 GiB, and for a route that
/// is none.
Knobs knobs_from_environment();

}  // namespace smp::dataparallel
