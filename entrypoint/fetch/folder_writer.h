// SPDX-License-Identifier: Apache-2.0
// Creates files below one folder and nowhere else, whatever names and links come along: names in
// archives of unknown origin are made harmless.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "smp_runtime/core/file.h"

namespace entrypoint::fetch {

struct MemberPath {
  std::string path;      ///< segments joined by single slashes; empty: nothing is left
  bool changed = false;  ///< more was dropped than a leading "./" or a trailing slash
};

/// Backslashes become slashes; drive letters, leading slashes, "." and ".." segments go:
/// "../../etc/passwd" is "etc/passwd". The name ends at its first NUL byte.
MemberPath harmless_path(std::string_view name);

/// True if a symbolic link at `link` (a harmless path) with this target stays within the folder,
/// counted by segments. Absolute targets do not.
bool stays_inside(std::string_view link, std::string_view target);

/// Paths are harmless. No symbolic link is ever followed on the way to a file, also not one that
/// was there before. Links are made last, by finish(), and those that turn out to lead outside are
/// removed again. What cannot be created is left out with a warning, for it is the archive's fault;
/// only a disk that is full or broken throws HostError.
class FolderWriter {
 public:
  /// Gives the next piece of a file's content and its offset; false at the end.
  struct Piece {
    std::span<const char> bytes;
    off_t offset = 0;
  };
  using Source = std::function<std::optional<Piece>()>;

  /// The folder must exist. Throws HostError.
  explicit FolderWriter(std::filesystem::path folder);

  void add_folder(const std::string& path, mode_t mode);
  /// Mode: the nine permission bits count. `size` sets the length where content has holes.
  void add_file(const std::string& path, mode_t mode, time_t modified, off_t size,
                const Source& source);
  void add_symbolic_link(const std::string& path, const std::string& target);
  /// A second name of a file that came before.
  void add_hard_link(const std::string& path, const std::string& target);

  void finish();

  /// One line for each name that was left out or changed, the first hundred.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  void warn(std::string text);

 private:
  struct Place {
    smp::FileDescriptor parent;
    std::string name;
  };
  std::optional<Place> open_place(const std::string& path);
  void check_disk(const std::string& path, int error) const;

  std::filesystem::path folder_;
  smp::FileDescriptor root_;
  std::map<std::string, std::string> links_;
  std::vector<std::string> warnings_;
};

}  // namespace entrypoint::fetch
