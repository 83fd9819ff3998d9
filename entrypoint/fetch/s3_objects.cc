// SPDX-License-Identifier: Apache-2.0
// S3Client's uploads, in one request or in parts, lists and removals.
#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "entrypoint/fetch/aws_services.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/text.h"

namespace entrypoint::fetch {
namespace {

// TLS protects what is sent; hashing it first would read every file twice.
constexpr const char* kUnsignedBody = "x-amz-content-sha256: UNSIGNED-PAYLOAD";
constexpr std::int64_t kMostParts = 10'000;
// Of a key at most 1024 bytes: such an answer is below what a response keeps.
constexpr int kKeysAtOnce = 250;

/// The text of an element, with what stands for `&<>"'` and for control characters.
std::string unescaped(std::string_view text) {
  constexpr std::pair<std::string_view, char> kNames[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  std::string result;
  while (!text.empty()) {
    const std::size_t end = text.front() == '&' ? text.find(';') : std::string_view::npos;
    if (end == std::string_view::npos) {
      result += text.front();
      text.remove_prefix(1);
      continue;
    }
    const std::string_view name = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (name.starts_with('#')) {
      const bool is_hex = name.starts_with("#x");
      const std::string digits(name.substr(is_hex ? 2 : 1));
      constexpr int kHex = 16;
      constexpr int kDecimal = 10;
      result += static_cast<char>(std::strtol(digits.c_str(), nullptr, is_hex ? kHex : kDecimal));
      continue;
    }
    for (const auto& [known, letter] : kNames) {
      if (name == known) result += letter;
    }
  }
  return result;
}

}  // namespace

void S3Client::upload(const std::filesystem::path& file, const S3Location& object) {
  const std::string what = "upload to " + object.text();
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error) throw smp::HostError("{}: {}: {}", what, file.string(), error.message());
  if (size > static_cast<std::uintmax_t>(options_.part_bytes)) {
    upload_parts(file, static_cast<std::int64_t>(size), object, what);
    return;
  }
  exchange(object, {.method = "PUT", .headers = {kUnsignedBody}, .from_file = file}, what);
}

/// The object appears when S3 is told that its parts are complete. What a killed upload leaves is
/// seen by no reader; a rule of the bucket (AbortIncompleteMultipartUpload) removes it.
void S3Client::upload_parts(const std::filesystem::path& file, std::int64_t size,
                            const S3Location& object, const std::string& what) {
  const HttpResponse begun =
      exchange(object, {.method = "POST", .headers = {kUnsignedBody}}, what, "uploads=");
  const std::string id = xml_text(begun.body, "UploadId");
  if (id.empty()) throw smp::HostError("{}: S3 named no upload of parts", what);
  const std::string upload = "uploadId=" + encode_query(id);
  const std::int64_t part = std::max(options_.part_bytes, (size + kMostParts - 1) / kMostParts);
  try {
    std::string parts;
    for (std::int64_t number = 1, offset = 0; offset < size; ++number, offset += part) {
      const std::string tag = upload_part(file, offset, part, object, what,
                                          fmt::format("partNumber={}&{}", number, upload));
      parts += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", number, tag);
    }
    const HttpResponse done =
        exchange(object,
                 {.method = "POST",
                  .headers = {kUnsignedBody, "Content-Type: application/xml"},
                  .body = "<CompleteMultipartUpload>" + parts + "</CompleteMultipartUpload>"},
                 what, upload);
    // S3 begins to answer with status 200, and may fail after that.
    if (xml_text(done.body, "ETag").empty()) {
      throw smp::HostError("{}: bucket {}, key {}: its parts were not put together: {} {}", what,
                           object.bucket, object.key, xml_text(done.body, "Code"),
                           xml_text(done.body, "Message"));
    }
  } catch (const smp::Error&) {
    try {
      exchange(object, {.method = "DELETE", .headers = {kUnsignedBody}}, what, upload);
    } catch (const smp::Error& error) {
      SMP_LOG(info, "{}: parts stay: {}", what, error.what());
    }
    throw;
  }
}

/// Returns the part's tag.
std::string S3Client::upload_part(const std::filesystem::path& file, std::int64_t offset,
                                  std::int64_t bytes, const S3Location& object,
                                  const std::string& what, const std::string& query) {
  const HttpResponse sent = exchange(object,
                                     {.method = "PUT",
                                      .headers = {kUnsignedBody},
                                      .from_file = file,
                                      .from_offset = offset,
                                      .from_bytes = bytes},
                                     what, query);
  std::string tag = sent.header("etag");
  if (tag.empty()) throw smp::HostError("{}: S3 gave a part no ETag", what);
  return tag;
}

std::vector<std::string> S3Client::list(const S3Location& prefix) {
  std::vector<std::string> keys;
  std::string next;
  do {
    const std::string query =
        (next.empty() ? "" : "continuation-token=" + encode_query(next) + "&") +
        fmt::format("list-type=2&max-keys={}&prefix={}", kKeysAtOnce, encode_query(prefix.key));
    const HttpResponse answer =
        exchange({.bucket = prefix.bucket, .key = ""}, {.headers = {kUnsignedBody}},
                 "list of " + prefix.text(), query);
    std::string_view rest = answer.body;
    constexpr std::string_view kOpen = "<Key>";
    for (std::size_t at = rest.find(kOpen); at != std::string_view::npos; at = rest.find(kOpen)) {
      rest.remove_prefix(at + kOpen.size());
      keys.push_back(unescaped(rest.substr(0, rest.find("</Key>"))));
    }
    next = xml_text(answer.body, "IsTruncated") == "true"
               ? unescaped(xml_text(answer.body, "NextContinuationToken"))
               : "";
  } while (!next.empty());
  return keys;
}

void S3Client::remove(const S3Location& object) {
  exchange(object, {.method = "DELETE", .headers = {kUnsignedBody}}, "removal of " + object.text());
}

}  // namespace entrypoint::fetch
