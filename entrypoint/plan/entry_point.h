// SPDX-License-Identifier: Apache-2.0
// The kind of the user's entry point.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/config/job_config.h"

namespace entrypoint {

enum class EntryPointKind {
  kNone,        ///< a training module looks for itself
  kProgram,     ///< a Python script
  kPackage,     ///< Python code with a setup.py
  kModule,      ///< "-m MODULE"
  kCommand,     ///< a script of another language, by the shell
  kExecutable,  ///< a compiled program, or any program of the image: without a shell
};

struct EntryPoint {
  EntryPointKind kind = EntryPointKind::kNone;
  std::string name;    ///< file relative to the code folder, or of the image; kModule: "-m MODULE"
  std::string module;  ///< kPackage, kModule: for `python -m`

  /// Run one after the other in the code folder before the start, on every host: pip.
  std::vector<std::vector<std::string>> install;
  /// Made executable for everybody before the start: kCommand, kExecutable; empty: nothing.
  std::filesystem::path make_executable;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;

  [[nodiscard]] bool is_python() const {
    return kind != EntryPointKind::kCommand && kind != EntryPointKind::kExecutable;
  }
  /// The name of its kind in a sentence, for one that is no Python.
  [[nodiscard]] std::string_view program_name() const {
    return kind == EntryPointKind::kCommand ? "a command" : "an executable";
  }
};

/// Pure. Decides by name and by what lies in the code folder: `-m MODULE` is a module, of the
/// folder or installed; a compiled file is an executable, as is a path of the image; `.sh` is a
/// command; with a setup.py anything else is a package; `.py` is a program; a bare name that only
/// the image's PATH knows is an executable; the rest are commands. Throws ConfigError when no entry
/// point is set, its name is forbidden, its file is not there or outside the folder, or when it
/// cannot be executed: a folder, a notebook, a file of the image without permission, another
/// machine's program.
EntryPoint resolve_entry_point(const JobConfig& job, const std::filesystem::path& python);

}  // namespace entrypoint
