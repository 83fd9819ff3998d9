// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/code_folder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <system_error>
#include <vector>

#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOwnFile = "/proc/self/exe";

/// The machine of an ELF file; none for other files. The field is where it is in both classes.
std::optional<Elf64_Half> machine_of(const fs::path& file) {
  std::array<char, offsetof(Elf64_Ehdr, e_machine) + sizeof(Elf64_Half)> header{};
  std::ifstream stream(file, std::ios::binary);
  if (!stream.read(header.data(), header.size())) return std::nullopt;
  if (std::memcmp(header.data(), ELFMAG, SELFMAG) != 0) return std::nullopt;
  Elf64_Half machine = 0;
  std::memcpy(&machine, header.data() + offsetof(Elf64_Ehdr, e_machine), sizeof(machine));
  return machine;
}

std::string name_of(Elf64_Half machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "AArch64";
    case EM_ARM:
      return "32-bit Arm";
    default:
      return fmt::format("machine {} of ELF's list", machine);
  }
}

bool is_launcher(const fs::path& file) {
  std::error_code ignored;
  return fs::equivalent(file, kOwnFile, ignored);
}

fs::path find_on(std::string_view search_path, const std::string& name) {
  std::error_code ignored;
  for (const std::string& folder : smp::split(search_path, ':')) {
    const fs::path file = fs::path(folder) / name;
    if (file.is_absolute() && fs::is_regular_file(file, ignored) && !is_launcher(file)) return file;
  }
  return {};
}

/// The program that env is asked for, behind its options and settings; empty: none.
std::string asked_of_env(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool is_program = !words[i].empty() && !words[i].starts_with('-') &&
                            words[i].find_first_of("=/") == std::string::npos;
    if (is_program) return words[i];
  }
  return {};
}

std::string first_bytes(const fs::path& path) {
  constexpr std::size_t kReadByKernel = 256;
  std::string start(kReadByKernel, '\0');
  std::ifstream stream(path, std::ios::binary);
  stream.read(start.data(), kReadByKernel);
  start.resize(static_cast<std::size_t>(stream.gcount()));
  return start;
}

std::string first_line_fault(std::string_view text, std::string_view search_path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const bool is_marked = text.starts_with(kByteOrderMark);
  if (is_marked) text.remove_prefix(kByteOrderMark.size());
  if (!text.starts_with("#!")) return {};
  if (is_marked) {
    return "it begins with a byte order mark, as Windows writes it, so that #! is not seen; save "
           "it as UTF-8 without one";
  }
  const std::string_view line = text.substr(2, text.substr(2).find('\n'));
  if (line.ends_with('\r')) {
    return "its first line ends in a carriage return, as Windows writes it; write it with LF "
           "(dos2unix, git config core.autocrlf input)";
  }
  std::string blanks(line);
  std::ranges::replace(blanks, '\t', ' ');
  const std::vector<std::string> words = smp::split(smp::trimmed(blanks), ' ');
  const fs::path interpreter = words.empty() ? fs::path{} : fs::path(words.front());
  std::error_code ignored;
  if (interpreter.is_absolute() && !fs::exists(interpreter, ignored)) {
    return fmt::format("its first line names {}, which is not there; name an interpreter that is",
                       interpreter.string());
  }
  const std::string asked = interpreter.filename() == "env" ? asked_of_env(words) : std::string();
  if (asked.empty() || !find_on(search_path, asked).empty()) return {};
  return fmt::format("its first line asks for {}, which is not on PATH; name a program that is",
                     asked);
}

ProgramFile look_at(const fs::path& path, std::string_view search_path) {
  ProgramFile file{.path = path};
  std::error_code ignored;
  file.is_file = fs::is_regular_file(path, ignored);
  file.is_executable = file.is_file && access(path.c_str(), X_OK) == 0;
  file.is_launcher = is_launcher(path);
  if (file.is_file) {
    const std::string start = first_bytes(path);
    file.names_interpreter = start.starts_with("#!");
    file.first_line_fault = first_line_fault(start, search_path);
  }
  if (const auto machine = machine_of(path)) {
    file.is_binary = true;
    // Machines of 64 bits run programs of the 32 that they came from.
    if (*machine != EM_386 && *machine != machine_of(kOwnFile)) {
      file.other_machine = name_of(*machine);
    }
  }
  return file;
}

bool escapes(const fs::path& code, const fs::path& file) {
  std::error_code error;
  const fs::path inside = fs::canonical(file, error).lexically_relative(fs::canonical(code, error));
  return error || inside.empty() || *inside.begin() == "..";
}

/// Without a setup.py only the code folder is on Python's path.
std::string module_in_package(const fs::path& code, const fs::path& file, bool is_installed) {
  const auto is_package = [&code](const fs::path& folder) {
    std::error_code ignored;
    return !folder.empty() && fs::exists(code / folder / "__init__.py", ignored);
  };
  fs::path folder = file.parent_path();
  if (!is_package(folder) || file.extension() != ".py") return {};
  std::string name = file.stem().string();
  for (; !folder.empty() && (!is_installed || is_package(folder)); folder = folder.parent_path()) {
    name = folder.filename().string() + "." + name;
  }
  return name;
}

std::string nested_requirements(const fs::path& code, const fs::path& entry_point) {
  const fs::path file = entry_point.parent_path() / "requirements.txt";
  std::error_code ignored;
  return file.has_parent_path() && fs::exists(code / file, ignored) ? file.string() : std::string();
}

}  // namespace

ProgramFile find_program_file(const fs::path& code, const std::string& entry_point,
                              std::string_view search_path) {
  std::error_code ignored;
  if (entry_point.empty()) return {};
  const bool in_code = !entry_point.starts_with('/');
  if (const fs::path file = code / entry_point; fs::exists(file, ignored)) {
    ProgramFile result = look_at(file, search_path);
    result.in_image = !in_code;
    return result;
  }
  const bool is_bare = entry_point.find('/') == std::string::npos;
  if (!is_bare || entry_point.ends_with(".py") || entry_point.ends_with(".sh")) return {};
  const fs::path found = find_on(search_path, entry_point);
  if (found.empty()) return {};
  ProgramFile result = look_at(found, search_path);
  result.in_image = true;
  return result;
}

CodeFolder look_into_code(const opt_ml::Layout& layout, const std::string& entry_point,
                          const smp::Variables& environment) {
  CodeFolder result;
  std::error_code error;
  for (fs::directory_iterator entry(layout.code(), error), end; !error && entry != end;
       entry.increment(error)) {
    result.entries.push_back(entry->path().filename().string());
  }
  std::ranges::sort(result.entries);
  if (entry_point.empty()) return result;
  const std::string module = module_of_entry_point(entry_point);
  std::string path = module.empty() ? entry_point : module;
  if (!module.empty()) std::ranges::replace(path, '.', '/');
  result.nested_requirements = nested_requirements(layout.code(), path);
  if (!module.empty()) {
    result.entry_point_exists = fs::is_regular_file(layout.code() / (path + ".py"), error) ||
                                fs::is_regular_file(layout.code() / path / "__main__.py", error);
    return result;
  }
  result.program =
      find_program_file(layout.code(), entry_point, smp::value_or(environment, "PATH"));
  const fs::path file = layout.code() / entry_point;
  if (entry_point.starts_with('/')) return result;
  result.entry_point_exists = fs::is_regular_file(file, error);
  result.entry_point_escapes = result.entry_point_exists && escapes(layout.code(), file);
  result.entry_point_in_package = true;
  for (fs::path parent = fs::path(entry_point).parent_path(); parent.has_relative_path();
       parent = parent.parent_path()) {
    result.entry_point_in_package &= fs::exists(layout.code() / parent / "__init__.py", error);
  }
  result.entry_point_module =
      module_in_package(layout.code(), entry_point, /*is_installed=*/result.has("setup.py"));
  return result;
}

std::string module_of_entry_point(const std::string& entry_point) {
  constexpr std::string_view kSwitch = "-m ";
  return entry_point.starts_with(kSwitch) ? entry_point.substr(kSwitch.size()) : "";
}

bool CodeFolder::has(std::string_view name) const {
  return std::ranges::find(entries, name) != entries.end();
}

}  // namespace entrypoint
