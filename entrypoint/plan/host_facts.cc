// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/host_facts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

/// "13.0" of "2.11.0+cu130"; empty for a torch without CUDA.
std::string cuda_of(std::string_view torch) {
  constexpr std::string_view kMark = "+cu";
  const std::size_t mark = torch.find(kMark);
  if (mark == std::string_view::npos) return {};
  const int digits = smp::leading_number<int>(torch.substr(mark + kMark.size())).value_or(0);
  return fmt::format("{}.{}", digits / 10, digits % 10);
}

}  // namespace

std::optional<std::string> shared_memory_warning(const smp::Variables& environment,
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
                        smp::value_or(environment, "TMPDIR", "/tmp")));
}

std::string shared_memory_text(const HostFacts& facts) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  if (!facts.shared_memory_bytes) return {};
  return fmt::format("/dev/shm has {} MiB: start the container with a larger --shm-size",
                     *facts.shared_memory_bytes / kMiB);
}

int oldest_driver(std::string_view cuda) {
  constexpr std::pair<int, int> kFamilies[] = {{11, 450}, {12, 525}, {13, 580}};
  const int major = smp::leading_number<int>(cuda).value_or(0);
  const auto* const row = std::ranges::find(kFamilies, major, &std::pair<int, int>::first);
  return row == std::end(kFamilies) ? 0 : row->second;
}

int driver_family(std::string_view version) {
  return smp::leading_number<int>(version).value_or(0);
}

std::optional<std::string> driver_warning(std::string_view driver, std::string_view torch) {
  const std::string cuda = cuda_of(torch);
  const int family = driver_family(driver);
  const int needed = oldest_driver(cuda);
  if (family == 0 || family >= needed) return std::nullopt;
  return fmt::format(
      "NVIDIA driver {} is older than CUDA {} of torch {} needs ({}): the script will not be able "
      "to use the GPUs; install driver {} or newer on the machine",
      driver, cuda, torch, needed, needed);
}

}  // namespace entrypoint
