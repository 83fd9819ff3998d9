// SPDX-License-Identifier: Apache-2.0
// Facts of the machine that the plan needs, and warnings of what they mean for the job. Gathered
// once by doctor/host_probe, given by tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/network/efa.h"
#include "entrypoint/network/interfaces.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint {

struct HostFacts {
  int num_cpus = 1;        ///< the operating system's count
  int num_gpus = 0;        ///< lines "GPU …" of `nvidia-smi --list-gpus`
  std::string gpu_driver;  ///< version of the NVIDIA kernel module, "580.65.06"; empty: none
  int num_neurons = 0;     ///< sum of nc_count in `neuron-ls -j`; 64 on trn2.48xlarge

  std::filesystem::path python;  ///< interpreter for the script; empty when there is none
  bool has_mpi4py = false;       ///< that interpreter can run `-m mpi4py`
  std::string torch_version;     ///< torch.__version__ of that interpreter; empty without torch
  bool has_tensorboard = false;  ///< that interpreter imports the package
  bool has_smddprun = false;     ///< a program of that name is on PATH
  bool has_smddpmprun = false;
  bool has_torchrun = false;
  bool has_prterun = false;  ///< beside mpirun, which is Open MPI 5's then

  std::vector<Interface> interfaces;
  std::string route_interface;        ///< leads to the first other host; empty when not known
  bool current_host_resolves = true;  ///< the host's own name has an address here
  EfaProbe efa;

  std::optional<std::uint64_t> shared_memory_bytes;  ///< size of /dev/shm; nothing: not known

  std::filesystem::path hostname_shim;  ///< library to preload; empty: none is installed
  std::filesystem::path launcher;       ///< this binary, absolute
};

/// The warning of a small /dev/shm: its size, the fate of shared tensors, and advice. `environment`
/// is the job's. Pure.
std::optional<std::string> shared_memory_warning(const smp::Variables& environment,
                                                 const HostFacts& facts);

/// The size of shared memory and advice, for a process that a bus error ended. Pure; empty where
/// the size is not known.
std::string shared_memory_text(const HostFacts& facts);

/// The oldest driver family that runs programs of a CUDA release, e.g. 580 for "13.0"; 0 for
/// unknown releases. NVIDIA's compatibility table: a driver runs every minor release of its CUDA.
int oldest_driver(std::string_view cuda);

/// The family of a driver's version, 580 of "580.65.06"; 0 for another text.
int driver_family(std::string_view version);

/// The warning of a driver that is too old for `torch` ("2.11.0+cu130"); none when it will do or
/// when either is unknown.
std::optional<std::string> driver_warning(std::string_view driver, std::string_view torch);

}  // namespace entrypoint
