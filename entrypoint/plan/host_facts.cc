// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/host_facts.h"

#include <fmt/format.h>

namespace entrypoint {

std::optional<std::string> shared_memory_warning(const EnvironmentMap& environment,
                                                 const HostFacts& facts) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  constexpr std::uint64_t kEnough = std::uint64_t{1} << 30;  // as shared_tensors.cc has it
  if (facts.shared_memory_bytes.value_or(kEnough) >= kEnough) return std::nullopt;
  return fmt::format(
      "/dev/shm has {} MiB, which NCCL and data loaders use: {}; where you can, start the "
      "container with --shm-size=2g",
      *facts.shared_memory_bytes / kMiB,
      facts.hostname_shim.empty()
          ? "batches of DataLoader workers that do not fit end the script with a bus error"
          : fmt::format("tensors that PyTorch shares between processes, such as batches of "
                        "DataLoader workers, lie in {} instead",
                        value_or(environment, "TMPDIR", "/tmp")));
}

std::string shared_memory_text(const HostFacts& facts) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  if (!facts.shared_memory_bytes) return {};
  return fmt::format("/dev/shm has {} MiB: start the container with a larger --shm-size",
                     *facts.shared_memory_bytes / kMiB);
}

}  // namespace entrypoint
