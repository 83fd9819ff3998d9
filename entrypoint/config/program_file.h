// SPDX-License-Identifier: Apache-2.0
// The file of an entry point that is no Python: what the plan asks about it, read once.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

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

}  // namespace entrypoint
