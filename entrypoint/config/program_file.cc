// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/program_file.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <system_error>

#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include "smp_runtime/core/split.h"

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

ProgramFile look_at(const fs::path& path) {
  ProgramFile file{.path = path};
  std::error_code ignored;
  file.is_file = fs::is_regular_file(path, ignored);
  file.is_executable = file.is_file && access(path.c_str(), X_OK) == 0;
  file.is_launcher = is_launcher(path);
  if (const auto machine = machine_of(path)) {
    file.is_binary = true;
    // Machines of 64 bits run programs of the 32 that they came from.
    if (*machine != EM_386 && *machine != machine_of(kOwnFile)) {
      file.other_machine = name_of(*machine);
    }
  }
  return file;
}

fs::path find_on(std::string_view search_path, const std::string& name) {
  std::error_code ignored;
  for (const std::string& folder : smp::split(search_path, ':')) {
    const fs::path file = fs::path(folder) / name;
    if (file.is_absolute() && fs::is_regular_file(file, ignored) && !is_launcher(file)) return file;
  }
  return {};
}

}  // namespace

ProgramFile find_program_file(const fs::path& code, const std::string& entry_point,
                              std::string_view search_path) {
  std::error_code ignored;
  if (entry_point.empty()) return {};
  const bool in_code = !entry_point.starts_with('/');
  if (const fs::path file = code / entry_point; fs::exists(file, ignored)) {
    ProgramFile result = look_at(file);
    result.in_image = !in_code;
    return result;
  }
  const bool is_bare = entry_point.find('/') == std::string::npos;
  if (!is_bare || entry_point.ends_with(".py") || entry_point.ends_with(".sh")) return {};
  const fs::path found = find_on(search_path, entry_point);
  if (found.empty()) return {};
  ProgramFile result = look_at(found);
  result.in_image = true;
  return result;
}

}  // namespace entrypoint
