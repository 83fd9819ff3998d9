// SPDX-License-Identifier: Apache-2.0
// Files: owners of descriptors, descriptors that a forked child gives up, and files that are read
// or written whole. Nothing is synchronised with the disk, for steps would wait for that
// (checkpoint/atomic_file.h does).
#pragma once

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <sys/types.h>
#include <unistd.h>

namespace smp {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { close(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  /// Gives the descriptor up, for callers that close it themselves to see whether close() fails.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// An eventfd that does not block: wakes a thread that sleeps in poll(). Throws HostError.
[[nodiscard]] FileDescriptor make_wake_file();

/// Blocks until all bytes are written. 0, or the errno of what failed.
[[nodiscard]] inline int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// While it is there, every child that this process forks closes its copy of `file`: the other end
/// of a connection is to see that this process ends, though a child of it lives on. In the child
/// the number stays taken, by /dev/null, so that nobody closes another file by it. (Programs that a
/// child executes never see what is marked close-on-exec.) The number stays open for longer than
/// this object.
class ParentOnlyFile {
 public:
  explicit ParentOnlyFile(int file);
  ~ParentOnlyFile();
  ParentOnlyFile(const ParentOnlyFile&) = delete;
  ParentOnlyFile& operator=(const ParentOnlyFile&) = delete;

 private:
  int file_;
};

inline constexpr mode_t kForEverybody = 0666;  ///< but for what the umask forbids
inline constexpr mode_t kForOwner = 0600;

/// A file beside `path` that becomes it, by a rename, when it is whole.
struct Draft {
  std::filesystem::path path;
  FileDescriptor file;  ///< not open where it cannot be made; errno says why
};

/// Makes a file `.NAME.RANDOM.ENDING`: a new one with that mode, under a name that nobody can know
/// before, so that no link or file of another user is in its way. The draft is the caller's to
/// rename or remove.
Draft open_draft(const std::filesystem::path& path, std::string_view ending,
                 mode_t mode = kForEverybody);

/// All that can be read of the file, which may be one of /proc; empty where nothing can.
std::string read_text(const std::filesystem::path& path);

/// Puts `text` behind what the file holds; makes the file, not its folder. Throws HostError with
/// the path and the system's reason.
void append_text(const std::filesystem::path& path, std::string_view text);

/// Makes the file hold `text` alone, with `mode`. Its readers see what it held before or the whole
/// text, also where hosts that share the folder write it at one time. Throws HostError as above;
/// the file is as it was then.
void replace_text(const std::filesystem::path& path, std::string_view text,
                  mode_t mode = kForEverybody);

}  // namespace smp
