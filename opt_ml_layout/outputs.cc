// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/outputs.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "opt_ml_layout/utf8.h"
#include "smp_runtime/core/error.h"

namespace opt_ml {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, std::string_view what, int error) {
  throw smp::HostError("{}: {}: {}; check the mount, its space and its permissions", file.string(),
                       what, std::strerror(error));
}

class File {
 public:
  File(const std::filesystem::path& path, int flags)
      : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }

  void write_all(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path_, "cannot be written", errno);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  /// A full disk may show only here.
  void sync() const {
    if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
      fail(path_, "cannot be written", errno);
    }
  }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

/// Removes a file on the way out; it may be gone already.
struct Remover {
  std::filesystem::path path;
  ~Remover() { ::unlink(path.c_str()); }
};

void create_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(folder, "cannot be created", error.value());
}

std::string as_utf8(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const Utf8Character next = decode_utf8(text);
    clean += next.valid ? text.substr(0, next.length) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(next.length);
  }
  return clean;
}

}  // namespace

void create_job_folders(const Layout& layout) {
  create_folder(layout.code());
  create_folder(layout.model());
  create_folder(layout.output_data());
}

void write_success(const Layout& layout) {
  create_folder(layout.output());
  const File file(layout.success_marker(), O_WRONLY | O_CREAT);
  if (!file.is_open()) fail(layout.success_marker(), "cannot be created", errno);
  file.sync();
}

bool write_failure(const Layout& layout, std::string_view text) {
  create_folder(layout.output());
  const std::filesystem::path marker = layout.failure_marker();
  const std::string clean = as_utf8(text);

  const Remover draft{layout.output() / (".failure." + std::to_string(::getpid()))};
  const File file(draft.path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.is_open()) fail(draft.path, "cannot be created", errno);
  file.write_all(clean);
  file.sync();

  // link() is atomic and, unlike rename(), refuses to replace what somebody else wrote.
  if (::link(draft.path.c_str(), marker.c_str()) == 0) return true;
  if (errno == EEXIST) return false;

  // Some shared file systems have no hard links; there the text is not atomic, its owner still is.
  const File direct(marker, O_WRONLY | O_CREAT | O_EXCL);
  if (!direct.is_open()) {
    if (errno == EEXIST) return false;
    fail(marker, "cannot be created", errno);
  }
  direct.write_all(clean);
  direct.sync();
  return true;
}

std::string_view utf8_prefix(std::string_view text, std::size_t limit_bytes) {
  if (text.size() <= limit_bytes) return text;
  std::size_t end = limit_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

}  // namespace opt_ml
