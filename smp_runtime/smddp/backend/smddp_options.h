// SPDX-License-Identifier: Apache-2.0
// Table of all variables by which users set options of smddp.
//
// libfabric has variables of its own; those with other defaults here stand in fabric_library.cc.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/variables.h"
#include "smp_runtime/smddp/collectives/communicator.h"
#include "smp_runtime/smddp/collectives/gpu_route.h"

namespace smp::smddp {

/// Buffers are as large as the group needs, if that is more: 64 bytes for each rank, 8192 over
/// several hosts.
inline constexpr std::array kOptions = {
    VariableRow{"SMDDP_SLOT_BYTES", "131072",
                "of shared memory for data on its way, four for each rank"},
    VariableRow{"SMDDP_WIRE_SLOT_BYTES", "262144",
                "the same in groups over several hosts, twelve for each rank"},
    VariableRow{"SMDDP_SMALL_BYTES", "32768", "up to here a collective is one step of all ranks"},
    VariableRow{
        "SMDDP_FABRIC_PROVIDER", "",
        "of libfabric between hosts, e.g. efa or tcp; else that of FI_PROVIDER, else efa where "
        "a device is, else one over TCP"},
    VariableRow{"SMDDP_INTERFACE", "", "to other hosts, e.g. eth0; else the one to MASTER_ADDR"},
    VariableRow{
        "SMDDP_GPU_ROUTE", "auto",
        "of tensors of GPUs: host, nccl-inside or nccl (gpu_route.h) for all sizes; auto takes "
        "the cheapest for each"},
    VariableRow{"SMP_JOB_SECRET", "", "secret of the job, the same on all ranks"},
    VariableRow{"SMP_JOB_SECRET_FILE", "", "file that holds it"},
    VariableRow{"SMP_RECORDS", "", "folder for what each group sent, which train --report reads"},
    VariableRow{"SM_LOG_LEVEL", "20", "as Python's levels; 10 tells that choice"},
};

struct SmddpOptions {
  collectives::Tuning tuning;
  transport::Network network;
  std::optional<collectives::GpuRoute> gpu_route;
  bool nccl_has_plugin = false;  ///< NCCL_NET_PLUGIN names one, as `train` sets it for EFA
  std::string record_folder;     ///< SMP_RECORDS; empty: nothing is recorded
  log::Level log_level = log::Level::kInfo;
};

/// An empty variable counts as unset. Throws ConfigError for a size that is no positive number of
/// at most 1 GiB, for a route that is none, and for a level that is none.
SmddpOptions make_options(const Variables& variables);
/// SM_LOG_LEVEL alone, its default for what is none: what is wrong is told where a group is made.
log::Level log_level(const Variables& variables);

/// One sentence for each SMDDP_ variable that is not in the table, with the nearest that is.
std::vector<std::string> describe_unknown_options(const Variables& variables);

}  // namespace smp::smddp
