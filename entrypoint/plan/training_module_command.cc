// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/training_module_command.h"

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

// The name comes as an argument, so that no text of the user's becomes code. The module is called
// as the reference does it from its own `train`, which is what sys.argv then says.
constexpr const char* kProgram =
    "import importlib, sys; module, function = sys.argv.pop().split(':'); sys.argv[0] = 'train'; "
    "getattr(importlib.import_module(module), function)()";

}  // namespace

std::vector<std::string> make_training_module_command(const std::string& module,
                                                      const std::filesystem::path& python) {
  const std::size_t colon = module.find(':');
  const bool is_pair = colon != std::string::npos && colon > 0 && colon + 1 < module.size() &&
                       module.find(':', colon + 1) == std::string::npos;
  if (!is_pair) {
    throw smp::ConfigError(
        "SAGEMAKER_TRAINING_MODULE={}: expected module:function, for example "
        "sagemaker_sklearn_container.training:main; correct or unset it",
        module);
  }
  if (python.empty()) {
    throw smp::ConfigError(
        "SAGEMAKER_TRAINING_MODULE={}: needs Python, and neither python3 nor python is on PATH; "
        "set SM_LAUNCH_PYTHON to an interpreter",
        module);
  }
  return {python.string(), "-c", kProgram, module};
}

}  // namespace entrypoint
