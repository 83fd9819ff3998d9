// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/outputs.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/utf8.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"

namespace opt_ml {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, std::string_view what, int error) {
  throw smp::HostError("{}: {}: {}; check the mount, its space and its permissions", file.string(),
                       what, std::strerror(error));
}

smp::FileDescriptor open_to_write(const std::filesystem::path& path, int flags) {
  return smp::FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644));
}

/// Until it is on the disk: a full one may show only then.
void write_through(const smp::FileDescriptor& file, const std::filesystem::path& path,
                   std::string_view bytes) {
  int error = smp::write_all(file.get(), bytes);
  if (error == 0 && ::fsync(file.get()) != 0 && errno != EINVAL && errno != EROFS) error = errno;
  if (error != 0) fail(path, "cannot be written", error);
}

/// A draft that is removed on the way out.
struct PassingDraft : smp::Draft {
  explicit PassingDraft(const std::filesystem::path& place)
      : Draft(smp::open_draft(place, "part", 0644)) {}
  ~PassingDraft() { ::unlink(path.c_str()); }
  PassingDraft(const PassingDraft&) = delete;
  PassingDraft& operator=(const PassingDraft&) = delete;
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

/// A text of a file's object; empty where there is no file, or none of it in there.
std::string text_member(const std::filesystem::path& file, std::string_view key) {
  const std::optional<Value> document = read_json_file(file);
  if (!document || document->is_null()) return {};
  const Value* found = document->find(key);
  if (document->object() != nullptr && (found == nullptr || found->is_null())) return {};
  if (found == nullptr || found->text() == nullptr) {
    throw smp::ConfigError("{}: found {}, expected an object whose {} is a text; correct it",
                           file.string(),
                           found == nullptr ? document->kind_name() : found->kind_name(), key);
  }
  return *found->text();
}

}  // namespace

void create_job_folders(const Layout& layout) {
  create_folder(layout.code());
  create_folder(layout.model());
  create_folder(layout.output_data());
}

void try_job_folders(const Layout& layout, const std::filesystem::path& checkpoints) {
  for (const std::filesystem::path& folder :
       {layout.output(), layout.output_data(), layout.model(), checkpoints}) {
    std::error_code ignored;
    if (folder == checkpoints && !std::filesystem::exists(folder, ignored)) continue;
    if (const PassingDraft trial(folder / "trial"); !trial.file.is_open()) {
      fail(folder, "the job has to write there, and no file can be made", errno);
    }
  }
}

void write_success(const Layout& layout) {
  create_folder(layout.output());
  const smp::FileDescriptor file = open_to_write(layout.success_marker(), 0);
  if (!file.is_open()) fail(layout.success_marker(), "cannot be created", errno);
  write_through(file, layout.success_marker(), "");
}

bool write_failure(const Layout& layout, std::string_view text) {
  create_folder(layout.output());
  const std::filesystem::path marker = layout.failure_marker();
  const std::string clean = as_utf8(text);

  const PassingDraft draft(marker);
  if (!draft.file.is_open()) fail(draft.path, "cannot be created", errno);
  write_through(draft.file, draft.path, clean);

  // link() is atomic and, unlike rename(), refuses to replace what somebody else wrote.
  if (::link(draft.path.c_str(), marker.c_str()) == 0) return true;
  if (errno == EEXIST) return false;

  // Some shared file systems have no hard links; there the text is not atomic, its owner still is.
  const smp::FileDescriptor direct = open_to_write(marker, O_EXCL);
  if (!direct.is_open()) {
    if (errno == EEXIST) return false;
    fail(marker, "cannot be created", errno);
  }
  write_through(direct, marker, clean);
  return true;
}

std::string_view utf8_prefix(std::string_view text, std::size_t limit_bytes) {
  if (text.size() <= limit_bytes) return text;
  std::size_t end = limit_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

std::filesystem::path read_tensorboard_folder(const Layout& layout) {
  return text_member(layout.tensorboard_config(), "LocalPath");
}

CheckpointPlace read_checkpoint_place(const Layout& layout) {
  const std::filesystem::path file = layout.checkpoint_config();
  const std::string folder = text_member(file, "LocalPath");
  return {.folder = folder.empty() ? layout.checkpoints() : std::filesystem::path(folder),
          .address = text_member(file, "S3Uri")};
}

}  // namespace opt_ml
