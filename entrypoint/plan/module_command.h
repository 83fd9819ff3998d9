// SPDX-License-Identifier: Apache-2.0
// SAGEMAKER_TRAINING_MODULE=module:function of another framework's image: a program that cannot
// import Python has Python do it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace entrypoint {

/// Pure. `python -c PROGRAM module:function`: the program imports the module and calls the function
/// without arguments, as the reference launcher does. Throws ConfigError when `python` is empty or
/// `module` is not of that form.
std::vector<std::string> make_module_command(const std::string& module,
                                             const std::filesystem::path& python);

}  // namespace entrypoint
