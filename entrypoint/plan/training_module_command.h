// SPDX-License-Identifier: Apache-2.0
// The command for SAGEMAKER_TRAINING_MODULE=module:function, which images of other frameworks set:
// a program that cannot import Python has Python do it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace entrypoint {

/// Pure. `python -c PROGRAM module:function`: the program imports the module and calls the function
/// without arguments, as the reference launcher does. Throws ConfigError when `python` is empty or
/// `module` is not of that form.
std::vector<std::string> make_training_module_command(const std::string& module,
                                                      const std::filesystem::path& python);

}  // namespace entrypoint
