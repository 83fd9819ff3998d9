// SPDX-License-Identifier: Apache-2.0
// The Python interpreter of the user's script, and packages beside it, found without starting it:
// importing torch alone would take longer than everything else that the launcher does.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

/// The interpreter of the user's script: `chosen` (SM_LAUNCH_PYTHON), else the first of python3 and
/// python on `path`; empty when there is none. Where a version manager's script stands in its
/// place, the interpreter behind it, which is asked for its name. Throws ConfigError when the
/// chosen one is not there.
std::filesystem::path find_python(const std::string& chosen, const std::string& path);

/// The folders from which the interpreter imports packages: PYTHONPATH (`python_path`), then its
/// site-packages and dist-packages, those of the base installation too where a virtual environment
/// includes them. A symbolic link to an interpreter counts as what it leads to, except within a
/// virtual environment.
std::vector<std::filesystem::path> package_folders(const std::filesystem::path& python,
                                                   std::string_view python_path = {});

/// True if a package or module of that name lies in one of the folders.
bool has_package(const std::vector<std::filesystem::path>& folders, std::string_view name);

/// torch.__version__, local part included ("2.11.0+cu130"); empty without torch.
std::string torch_version(const std::vector<std::filesystem::path>& folders);

/// Asks the interpreter itself, which follows path files, for what is installed: its version, as
/// importlib.metadata has it; empty without the package. `environment` is NAME=value. At most 30 s.
std::string installed_version(const std::filesystem::path& python, const std::string& package,
                              std::vector<std::string> environment);

}  // namespace entrypoint
