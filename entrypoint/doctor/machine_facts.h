// SPDX-License-Identifier: Apache-2.0
// The machine as `train --doctor` sees it: GPUs, fabric, limits and space.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/network/efa.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint {

/// Facts of torch, once it was really imported.
struct TorchFacts {
  std::string version;
  std::string cuda;                    ///< the CUDA release it was built for; empty: none
  int gpus = 0;                        ///< that it can use
  std::string nccl;                    ///< of the library it links; empty: none
  std::optional<std::string> problem;  ///< why the import fails; then nothing above is set
};

struct DiskSpace {
  std::filesystem::path path;
  std::uint64_t free_bytes = 0;  ///< for this user
  std::uint64_t free_files = std::numeric_limits<std::uint64_t>::max();
  bool writable = true;
};

struct MachineFacts {
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

  bool gpu_device_nodes = false;  ///< /dev/nvidiactl is there
  bool has_nvidia_smi = false;
  std::string driver_version;     ///< e.g. "580.65.06"; empty: none answers
  std::string driver_problem;     ///< nvidia-smi's own words when it fails
  std::vector<std::string> gpus;  ///< names, one for each

  std::vector<std::filesystem::path> nccl_libraries;  ///< distinct files that a job may load
  EfaProbe efa;

  std::uint64_t memlock_bytes = kUnlimited;             ///< of this process and its children
  std::optional<std::uint64_t> shared_memory_bytes;     ///< size of /dev/shm; nothing: not there
  std::uint64_t shared_memory_free_bytes = kUnlimited;  ///< of it
  std::vector<DiskSpace> disks;
};

/// Driver version and GPU names of `nvidia-smi --query-gpu=driver_version,name
/// --format=csv,noheader`. Pure.
void read_gpu_query(std::string_view output, MachineFacts& facts);

/// Reads the output of ask_torch()'s program; anything but its JSON object, in the last line, is a
/// problem. Pure.
TorchFacts read_torch_query(std::string_view output);

/// Imports torch in that interpreter: files alone do not show a missing CUDA library. At most 60 s.
TorchFacts ask_torch(const std::filesystem::path& python);

/// Looks once; `packages` are the folders of the job's interpreter, `folders` those whose space
/// counts. Starts nvidia-smi and fi_info where they are installed, at most 30 s each.
MachineFacts look_at_machine(const smp::Variables& environment,
                             const std::vector<std::filesystem::path>& packages,
                             const std::vector<std::filesystem::path>& folders);

}  // namespace entrypoint
