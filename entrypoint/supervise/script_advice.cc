// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/script_advice.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace entrypoint::supervise {
namespace {

constexpr std::string_view kNoGpu =
    "This machine has no GPU: ask torch.cuda.is_available() first, or set SMP_CPU=1 to debug on "
    "CPUs";
constexpr std::array kKnown = {
    std::pair<std::string_view, std::string_view>{"Found no NVIDIA driver", kNoGpu},
    std::pair<std::string_view, std::string_view>{"Torch not compiled with CUDA enabled", kNoGpu},
    std::pair<std::string_view, std::string_view>{
        "initialize the default process group twice",
        "smp.init() has initialised torch.distributed: leave init_process_group out, or call it "
        "first"},
    std::pair<std::string_view, std::string_view>{
        "environment variable RANK expected, but not set",
        "mpirun sets no RANK: import smdistributed.dataparallel.torch.torch_smddp first, which "
        "does, or start with torchrun"},
    std::pair<std::string_view, std::string_view>{
        "Unknown c10d backend type SMDDP",
        "import smdistributed.dataparallel.torch.torch_smddp before init_process_group(\"smddp\")"},
    std::pair<std::string_view, std::string_view>{
        "error while loading shared libraries:",
        "The program's loader does not find that library: build it with the library's folder as "
        "RPATH, or set LD_LIBRARY_PATH"},
    std::pair<std::string_view, std::string_view>{
        "error: unrecognized arguments:",
        "Hyperparameters are arguments of the script: add them, or use "
        "parser.parse_known_args()"},
};

std::string channel_advice(std::string_view error, const std::vector<std::string>& channels) {
  if (!error.starts_with("KeyError: 'SM_CHANNEL_")) return {};
  if (channels.empty()) return "The job has no channels: --channel NAME=DIR gives it one";
  return fmt::format("The job's channels are {}", fmt::join(channels, ", "));
}

}  // namespace

std::string script_advice(std::string_view error, const std::vector<std::string>& channels) {
  const auto known = std::ranges::find_if(
      kKnown, [&](const auto& one) { return error.find(one.first) != std::string_view::npos; });
  return known == kKnown.end() ? channel_advice(error, channels) : std::string(known->second);
}

}  // namespace entrypoint::supervise
