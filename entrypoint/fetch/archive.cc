// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/archive.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <unistd.h>

#include "entrypoint/fetch/folder_writer.h"
#include "smp_runtime/core/error.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = 64 * 1024;

struct FreeReader {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, FreeReader>;

Reader make_reader() {
  Reader reader(archive_read_new());
  if (!reader) throw smp::HostError("libarchive cannot be initialised");
  archive_read_support_format_tar(reader.get());
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_filter_bzip2(reader.get());
  archive_read_support_filter_xz(reader.get());
  archive_read_support_filter_zstd(reader.get());
  return reader;
}

/// A name that the locale cannot spell comes as UTF-8 only.
std::string text_or(const char* raw, const char* utf8) {
  if (raw != nullptr) return raw;
  return utf8 != nullptr ? utf8 : "";
}

std::string reason_of(archive* reader) {
  const char* const reason = archive_error_string(reader);
  return reason == nullptr ? "it is cut off" : reason;
}

[[noreturn]] void fail(const fs::path& file, archive* reader) {
  throw smp::ConfigError("{}: not a whole archive: {}; make it again", file.string(),
                         reason_of(reader));
}

FolderWriter::Source content_of(archive* reader, const fs::path& file) {
  return [reader, file]() -> std::optional<FolderWriter::Piece> {
    const void* data = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    const int result = archive_read_data_block(reader, &data, &size, &offset);
    if (result == ARCHIVE_EOF) return std::nullopt;
    if (result < ARCHIVE_WARN) fail(file, reader);
    return FolderWriter::Piece{.bytes = {static_cast<const char*>(data), size}, .offset = offset};
  };
}

void add_member(archive* reader, archive_entry* entry, const fs::path& file, FolderWriter& writer) {
  const std::string name =
      text_or(archive_entry_pathname(entry), archive_entry_pathname_utf8(entry));
  const MemberPath member = harmless_path(name);
  if (member.path.empty()) {
    if (member.changed)
      writer.warn(fmt::format("\"{}\": left out: nothing is left of its name", name));
    return;
  }
  if (member.changed) writer.warn(fmt::format("\"{}\": unpacked as {}", name, member.path));

  const std::string hard_link =
      text_or(archive_entry_hardlink(entry), archive_entry_hardlink_utf8(entry));
  if (!hard_link.empty()) {
    const MemberPath target = harmless_path(hard_link);
    if (target.path.empty() || target.changed) {
      writer.warn(fmt::format("{}: left out: a hard link to {}, outside the code folder",
                              member.path, hard_link));
    } else {
      writer.add_hard_link(member.path, target.path);
    }
    return;
  }
  switch (archive_entry_filetype(entry)) {
    case AE_IFDIR:
      writer.add_folder(member.path, archive_entry_perm(entry));
      return;
    case AE_IFREG:
      writer.add_file(member.path, archive_entry_perm(entry), archive_entry_mtime(entry),
                      archive_entry_size(entry), content_of(reader, file));
      return;
    case AE_IFLNK:
      writer.add_symbolic_link(
          member.path, text_or(archive_entry_symlink(entry), archive_entry_symlink_utf8(entry)));
      return;
    default:
      writer.warn(fmt::format("{}: left out: a device, FIFO or socket", member.path));
  }
}

/// Counts what an archive comes to on a disk.
class Budget {
 public:
  Budget(const fs::path& file, const fs::path& folder, const ArchiveLimits& limits)
      : file_(file), folder_(folder), limits_(limits), most_bytes_(most_bytes(limits, folder)) {}

  /// Before a member is looked at: the size that its header says is what its file would have.
  void take(archive_entry* entry) {
    const std::int64_t size = archive_entry_size(entry);
    const std::int64_t blocks = std::max<std::int64_t>(size, 0) / kBlock + 1;  // its name, too
    if (++members_ > limits_.members) {
      throw smp::ConfigError(
          "{}: it has more than {} members; make it smaller, or raise SM_LAUNCH_CODE_MAX_FILES",
          file_.string(), limits_.members);
    }
    if (blocks <= (most_bytes_ - bytes_) / kBlock) {
      bytes_ += blocks * kBlock;
      return;
    }
    throw smp::ConfigError(
        "{}: its first {} members take more than {} bytes, {}; make it smaller, give {} more "
        "space, or raise SM_LAUNCH_CODE_MAX_BYTES",
        file_.string(), members_, most_bytes_,
        limits_.bytes > 0 ? "the value of SM_LAUNCH_CODE_MAX_BYTES"
                          : "nine tenths of the space that is free",
        folder_.string());
  }

 private:
  static constexpr std::int64_t kBlock = 4096;  // what a file takes at least, and is rounded up to

  const fs::path& file_;
  const fs::path& folder_;
  const ArchiveLimits& limits_;
  std::int64_t most_bytes_;
  std::int64_t bytes_ = 0;
  std::int64_t members_ = 0;
};

/// Reads an archive from begin to end. `visit` gets each member, and may read its content.
template <typename Visit>
Unpacked read_members(const fs::path& file, Budget budget, const Visit& visit) {
  const Reader reader = make_reader();
  Unpacked result;
  if (archive_read_open_filename(reader.get(), file.c_str(), kBlockBytes) != ARCHIVE_OK) {
    result.refusal = reason_of(reader.get());
    if (access(file.c_str(), R_OK) != 0) throw smp::HostError("{}", result.refusal);
    return result;
  }
  while (true) {
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(reader.get(), &entry);
    if (status == ARCHIVE_EOF) break;
    if (status == ARCHIVE_RETRY) continue;
    if (status < ARCHIVE_WARN) {
      if (!result.is_archive) {
        result.refusal = reason_of(reader.get());
        return result;
      }
      fail(file, reader.get());
    }
    result.is_archive = true;
    ++result.members;
    budget.take(entry);
    visit(reader.get(), entry);
  }
  result.is_archive |= archive_format(reader.get()) != 0;  // one of no members, too
  return result;
}

}  // namespace

std::int64_t most_bytes(const ArchiveLimits& limits, const fs::path& folder) {
  if (limits.bytes > 0) return limits.bytes;
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) throw smp::HostError("{}: {}", folder.string(), error.message());
  return static_cast<std::int64_t>(space.available / 10 * 9);
}

Unpacked unpack(const fs::path& file, const fs::path& folder, const ArchiveLimits& limits) {
  const Budget budget(file, folder, limits);
  Unpacked result = read_members(file, budget, [&](archive* reader, archive_entry*) {
    if (archive_read_data_skip(reader) < ARCHIVE_WARN) fail(file, reader);
  });
  if (!result.is_archive) return result;
  FolderWriter writer(folder);
  read_members(file, budget, [&](archive* reader, archive_entry* entry) {
    add_member(reader, entry, file, writer);
  });
  writer.finish();
  result.warnings = writer.warnings();
  return result;
}

}  // namespace entrypoint::fetch
