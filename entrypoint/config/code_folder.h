// SPDX-License-Identifier: Apache-2.0
// The folder of the user's code, and the file of an entry point that is no Python: what the plan
// asks about them, read once.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "opt_ml_layout/paths.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint {

struct ProgramFile {
  std::filesystem::path path;      ///< absolute; empty: nothing of that name is there
  bool in_image = false;           ///< not of the code folder, so that nothing of it is changed
  bool is_file = false;            ///< false for a folder
  bool is_binary = false;          ///< ELF: it is started without a shell
  bool is_executable = false;      ///< for this user
  bool is_launcher = false;        ///< this very program
  bool names_interpreter = false;  ///< begins with #!
  /// Why the kernel cannot follow its first line, and the mend; empty: it can, or has no #! to.
  std::string first_line_fault;
  std::string other_machine;  ///< what a binary was built for, when this machine is none such
};

/// Looks for `entry_point` in `code`, then on `search_path`, PATH's value, for a bare name without
/// a script's ending. An absolute path is taken as it is. The launcher is not found by its name.
ProgramFile find_program_file(const std::filesystem::path& code, const std::string& entry_point,
                              std::string_view search_path);

/// The content of <base>/code as far as the plan needs it, read once.
struct CodeFolder {
  std::vector<std::string> entries;     ///< names at the top level, sorted
  bool fetched = false;                 ///< this run has put them there
  bool entry_point_exists = false;      ///< as a file, relative to the folder, or a module there
  bool entry_point_escapes = false;     ///< its real path lies outside the folder
  bool entry_point_in_package = false;  ///< each folder on its path is a Python package
  /// The module that it is within its package, if its own folder is one: "package.train".
  std::string entry_point_module;
  std::string nested_requirements;  ///< requirements.txt beside it, below the top level; or empty
  ProgramFile program;              ///< the entry point, in the folder or in the image

  [[nodiscard]] bool has(std::string_view name) const;
};

/// The module of an entry point "-m MODULE"; empty for files.
std::string module_of_entry_point(const std::string& entry_point);

/// Reads the code folder as it is now; the entry point as JobConfig names it, or empty.
/// `environment` says where the image has programs.
CodeFolder look_into_code(const opt_ml::Layout& layout, const std::string& entry_point,
                          const smp::Variables& environment);

}  // namespace entrypoint
