// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/archive.h"

#include <memory>
#include <optional>
#include <string_view>

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <unistd.h>

#include "entrypoint/fetch/folder_writer.h"
#include "smp_runtime/core/error.h"

namespace entrypoint::fetch {
namespace {

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

[[noreturn]] void fail(const std::filesystem::path& file, archive* reader) {
  throw smp::ConfigError("{}: not a whole archive: {}; make it again", file.string(),
                         reason_of(reader));
}

FolderWriter::Source content_of(archive* reader, const std::filesystem::path& file) {
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

void add_member(archive* reader, archive_entry* entry, const std::filesystem::path& file,
                FolderWriter& writer) {
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

}  // namespace

Unpacked unpack(const std::filesystem::path& file, const std::filesystem::path& folder) {
  const Reader reader = make_reader();
  Unpacked result;
  if (archive_read_open_filename(reader.get(), file.c_str(), kBlockBytes) != ARCHIVE_OK) {
    result.refusal = reason_of(reader.get());
    if (access(file.c_str(), R_OK) != 0) throw smp::HostError("{}", result.refusal);
    return result;
  }
  FolderWriter writer(folder);
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
    add_member(reader.get(), entry, file, writer);
  }
  result.is_archive |= archive_format(reader.get()) != 0;  // one of no members, too
  writer.finish();
  result.warnings = writer.warnings();
  return result;
}

}  // namespace entrypoint::fetch
