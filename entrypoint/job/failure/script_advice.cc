// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/script_advice.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::string_view kNoGpu =
    "This machine has no GPU: ask torch.cuda.is_available() first, or set SMP_CPU=1 to debug on "
    "CPUs";
constexpr std::string_view kPortTaken =
    "Another program listens at the port where the ranks meet: set MASTER_PORT to a free one";
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
    std::pair<std::string_view, std::string_view>{"EADDRINUSE", kPortTaken},
    std::pair<std::string_view, std::string_view>{"ddress already in use", kPortTaken},
};

std::string channel_advice(std::string_view error, const std::vector<std::string>& channels) {
  if (!error.starts_with("KeyError: 'SM_CHANNEL_")) return {};
  if (channels.empty()) return "The job has no channels: --channel NAME=DIR gives it one";
  return fmt::format("The job's channels are {}", fmt::join(channels, ", "));
}

std::string_view behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  return at == std::string_view::npos ? std::string_view{} : text.substr(at + mark.size());
}

/// True if a word, the value of a flag, is left over that no unknown name stands before.
bool leaves_value(std::string_view words) {
  bool after_name = false;
  for (const std::string& word : smp::split(words, ' ')) {
    if (word.empty()) continue;
    const bool is_name = word.starts_with('-');
    if (!is_name && !after_name) return true;
    after_name = is_name;
  }
  return false;
}

/// Hyperparameters arrive as `--name value`, each.
std::string argument_advice(const ScriptError& error) {
  constexpr std::string_view kFlag =
      "A flag takes no value: declare it with action=argparse.BooleanOptionalAction or a type that "
      "reads True and False";
  const std::string_view left = behind(error.error, "error: unrecognized arguments: ");
  // click and typer; argparse for --flag=value.
  for (const std::string_view mark :
       {"Got unexpected extra argument", "ignored explicit argument", "does not take a value"}) {
    if (error.error.find(mark) != std::string_view::npos) return std::string(kFlag);
  }
  const bool is_unknown = !left.empty() || error.error.find("No such option: ") == 0 ||
                          error.error.find("Error: No such option") != std::string_view::npos;
  if (!is_unknown) return {};
  if (error.said.find("[overrides") != std::string_view::npos) {
    return "Hydra takes key=value: set SM_LAUNCH_ARGS=overrides, which sends hyperparameters so";
  }
  if (leaves_value(left)) return std::string(kFlag);
  return "Hyperparameters are arguments of the script: add them, or use parser.parse_known_args()";
}

std::string relative_import_advice(const std::string& module) {
  if (!module.empty()) {
    return fmt::format("Start it as a module of its package: set sagemaker_program to -m {}",
                       module);
  }
  return "A script is of no package: write import NAME, or put it into a package and set "
         "sagemaker_program to -m PACKAGE.NAME";
}

}  // namespace

std::string script_advice(const ScriptError& error) {
  if (error.installs && error.error.find("No module named ") != std::string_view::npos) {
    return "pip builds in isolation from the image's packages: give a wheel, install it in the "
           "image, or set PIP_NO_BUILD_ISOLATION=0 (0: no isolation)";
  }
  const auto known = std::ranges::find_if(kKnown, [&](const auto& one) {
    return error.error.find(one.first) != std::string_view::npos;
  });
  if (known != kKnown.end()) return std::string(known->second);
  if (error.error.find("attempted relative import") != std::string_view::npos) {
    return relative_import_advice(error.module);
  }
  std::string advice = argument_advice(error);
  return advice.empty() ? channel_advice(error.error, error.channels) : advice;
}

}  // namespace entrypoint
