// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/temporary_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include <unistd.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

/// mpirun makes what is missing above it.
fs::path nearest_existing(fs::path folder) {
  std::error_code ignored;
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

}  // namespace

fs::path temporary_folder(const EnvironmentMap& environment) {
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}) {
    if (std::string value = value_or(environment, name); !value.empty()) return value;
  }
  return "/tmp";
}

void try_temporary_folder(std::span<const std::string> argv, const EnvironmentMap& environment) {
  const auto names_folder = [](const std::string& word) {
    return word.find("tmpdir_base") != std::string::npos;
  };
  if (std::ranges::any_of(argv, names_folder)) return;
  const fs::path folder = temporary_folder(environment);
  std::string trial = (nearest_existing(fs::absolute(folder)) / "smp-trial-XXXXXX").string();
  if (mkdtemp(trial.data()) != nullptr) {
    rmdir(trial.c_str());
    return;
  }
  throw smp::ConfigError(
      "{}: mpirun has to make a folder there, and cannot: {}; set TMPDIR to a folder that can be "
      "written",
      folder.string(), std::strerror(errno));
}

}  // namespace entrypoint
