// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/outputs/output_file.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fmt/core.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"

namespace smp::metrics {
namespace {

/// 0, or the errno of what failed. `mode` as fopen() takes it.
int try_to_write(const std::filesystem::path& path, const char* mode, std::string_view text) {
  std::FILE* const file = std::fopen(path.c_str(), mode);
  if (file == nullptr) return errno;
  const int written = std::fwrite(text.data(), 1, text.size(), file) == text.size() ? 0 : errno;
  // Most of a text is written only here, and some file systems tell here that the disk is full.
  const int closed = std::fclose(file) == 0 ? 0 : errno;
  return written != 0 ? written : closed;
}

void check_written(const std::filesystem::path& path, int code) {
  if (code == 0) return;
  throw HostError("cannot write {}: {}", path.string(),
                  std::error_code(code, std::generic_category()).message());
}

}  // namespace

void append_text(const std::filesystem::path& path, std::string_view text) {
  check_written(path, try_to_write(path, "ae", text));
}

void replace_text(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path draft = path;
  draft += fmt::format(".{}.part", ::getpid());
  int code = try_to_write(draft, "we", text);
  if (code == 0 && std::rename(draft.c_str(), path.c_str()) != 0) code = errno;
  if (code != 0) ::unlink(draft.c_str());
  check_written(path, code);
}

}  // namespace smp::metrics
