// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/python_packages.h"

#include <algorithm>
#include <array>
#include <fstream>

#include <unistd.h>

#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

// Version managers put a shell script in an interpreter's place, and nothing lies beside that.
fs::path behind_script(const fs::path& python) {
  std::ifstream file(python, std::ios::binary);
  std::array<char, 2> start{};
  if (!file.read(start.data(), start.size()) || start[0] != '#' || start[1] != '!') return python;
  const Completed asked =
      run_command({.argv = {python.string(), "-c", "import sys; print(sys.executable)"},
                   .environment = current_environment()},
                  kToolLimit);
  const fs::path real = asked.output.substr(0, asked.output.find('\n'));
  return asked.status.ok() && real.is_absolute() ? real : python;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void add_folder(std::vector<fs::path>& folders, const fs::path& folder) {
  if (is_there(folder) && std::ranges::find(folders, folder) == folders.end()) {
    folders.push_back(folder);
  }
}

// <prefix>/lib/python3*/{site,dist}-packages. Debian keeps pure packages in lib/python3.
void add_prefix(std::vector<fs::path>& folders, const fs::path& prefix) {
  for (const char* lib : {"lib", "lib64"}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(prefix / lib, ignored)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      add_folder(folders, entry.path() / "site-packages");
      add_folder(folders, entry.path() / "dist-packages");
    }
  }
}

struct VirtualEnvironment {
  fs::path prefix;
  fs::path base;  ///< folder of the interpreter that it was made from
  bool includes_base = false;
};

VirtualEnvironment read_virtual_environment(const fs::path& python) {
  VirtualEnvironment result;
  const fs::path prefix = python.parent_path().parent_path();
  std::ifstream file(prefix / "pyvenv.cfg");
  if (!file) return result;
  result.prefix = prefix;
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string_view key = smp::trimmed(std::string_view(line).substr(0, equals));
    const std::string_view value = smp::trimmed(std::string_view(line).substr(equals + 1));
    if (key == "home") result.base = value;
    if (key == "include-system-site-packages") result.includes_base = value == "true";
  }
  return result;
}

void add_installation(std::vector<fs::path>& folders, const fs::path& bin) {
  const fs::path prefix = bin.parent_path();
  if (prefix == "/usr") add_prefix(folders, "/usr/local");
  add_prefix(folders, prefix);
}

}  // namespace

fs::path find_python(const std::string& chosen, const std::string& path) {
  if (!chosen.empty()) {
    const fs::path python = find_program(chosen, path);
    if (python.empty() || access(python.c_str(), X_OK) != 0) {
      throw smp::ConfigError("SM_LAUNCH_PYTHON={}: no such program; correct or unset it", chosen);
    }
    return behind_script(python);
  }
  for (const char* name : {"python3", "python"}) {
    if (fs::path python = find_program(name, path); !python.empty()) return behind_script(python);
  }
  return {};
}

std::vector<fs::path> package_folders(const fs::path& python, std::string_view python_path) {
  std::vector<fs::path> folders;
  for (const std::string& folder : smp::split(python_path, ':')) {
    if (!folder.empty()) add_folder(folders, folder);
  }
  if (python.empty()) return folders;
  const VirtualEnvironment environment = read_virtual_environment(python);
  if (!environment.prefix.empty()) {
    add_prefix(folders, environment.prefix);
    if (environment.includes_base) add_installation(folders, environment.base);
    return folders;
  }
  std::error_code failed;
  const fs::path real = fs::canonical(python, failed);
  add_installation(folders, (failed ? python : real).parent_path());
  return folders;
}

bool has_package(const std::vector<fs::path>& folders, std::string_view name) {
  return std::ranges::any_of(folders, [name](const fs::path& folder) {
    return is_there(folder / name / "__init__.py") ||
           is_there(folder / (std::string(name) + ".py"));
  });
}

std::string torch_version(const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    // A generated file with the line: __version__ = '2.11.0+cu130'
    std::ifstream file(folder / "torch" / "version.py");
    std::string line;
    while (std::getline(file, line)) {
      if (!line.starts_with("__version__")) continue;
      const std::size_t begin = line.find_first_of("'\"");
      const std::size_t end = line.find_last_of("'\"");
      if (begin != std::string::npos && end > begin) {
        return line.substr(begin + 1, end - begin - 1);
      }
    }
  }
  return {};
}

std::string installed_version(const fs::path& python, const std::string& package,
                              std::vector<std::string> environment) {
  const Completed asked = run_command(
      {.argv = {python.string(), "-c",
                "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))",
                package},
       .environment = std::move(environment)},
      kToolLimit);
  return asked.status.ok() ? std::string(smp::trimmed(asked.output)) : std::string();
}

}  // namespace entrypoint
