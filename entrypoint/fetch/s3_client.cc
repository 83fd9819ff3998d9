// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/s3_client.h"

#include <algorithm>

#include <fmt/format.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::fetch {
namespace {

// SHA-256 of nothing, which is the body of a GET.
constexpr const char* kEmptyBody =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
// TLS protects what is sent; hashing it first would read every file twice.
constexpr const char* kUnsignedBody = "x-amz-content-sha256: UNSIGNED-PAYLOAD";

constexpr int kForbidden = 403;
constexpr int kNotFound = 404;

/// 403 is also the answer to clocks and signatures that are wrong: the code tells which.
std::string_view advice_for(int status, std::string_view code, std::string_view key) {
  if (code == "AccessDenied") {
    return "; the job's role needs s3:GetObject or s3:PutObject there, and kms:Decrypt or "
           "kms:GenerateDataKey for an encrypted bucket";
  }
  if (code == "RequestTimeTooSkewed") return "; set this machine's clock";
  if (status != kNotFound) return "";
  constexpr std::string_view kArchives[] = {".gz", ".tgz", ".tar", ".zip", ".bz2", ".xz", ".zst"};
  const bool is_archive = std::ranges::any_of(
      kArchives, [key](std::string_view ending) { return key.ends_with(ending); });
  return code != "NoSuchKey" || is_archive
             ? "; check bucket, key and region"
             : "; a prefix is no archive: name the object itself, such as PREFIX/sourcedir.tar.gz";
}

}  // namespace

std::string xml_text(std::string_view xml, std::string_view name) {
  const std::string open = fmt::format("<{}>", name);
  const std::size_t begin = xml.find(open);
  const std::size_t end = xml.find(fmt::format("</{}>", name));
  if (begin == std::string_view::npos || end == std::string_view::npos) return {};
  const std::size_t start = begin + open.size();
  return start <= end ? std::string(xml.substr(start, end - start)) : std::string{};
}

HttpResponse S3Client::exchange(const S3Location& object, HttpRequest request,
                                const std::string& what) {
  const auto send = [&] {
    request.url = object_url(endpoint_, object);
    request.signature =
        Signature{.credentials = credentials_.get(), .region = endpoint_.region, .service = "s3"};
    return send_with_retries(client_, request, policy_, what);
  };
  HttpResponse response;
  try {
    response = send();
    // A bucket elsewhere: S3 says where, whatever it answers.
    const std::string region = response.header("x-amz-bucket-region");
    if (!response.ok() && endpoint_.override_url.empty() && !region.empty() &&
        region != endpoint_.region) {
      SMP_LOG(info, "bucket {} is in region {}, not {}", object.bucket, region, endpoint_.region);
      endpoint_.region = region;
      response = send();
    }
  } catch (const NoAnswer& error) {
    throw smp::HostError("{}: bucket {}, key {}: no answer after {} attempts: {}", what,
                         object.bucket, object.key, policy_.attempts, error.what());
  }
  if (response.ok()) return response;

  const std::string code = xml_text(response.body, "Code");
  const std::string message = xml_text(response.body, "Message");
  const std::string text = fmt::format(
      "{}: bucket {}, key {}: HTTP status {}{}{}{}{}", what, object.bucket, object.key,
      response.status, code.empty() ? "" : " " + code, message.empty() ? "" : ": " + message,
      advice_for(response.status, code, object.key),
      response.status == kForbidden ? "; credentials came from " + credentials_.get().origin : "");
  constexpr int kServerErrors = 500;
  if (response.status < kServerErrors) throw smp::ConfigError("{}", text);
  throw smp::HostError("{}", text);
}

void S3Client::download(const S3Location& object, const std::filesystem::path& file) {
  exchange(object, {.headers = {kEmptyBody}, .to_file = file}, "download of " + object.text());
}

void S3Client::upload(const std::filesystem::path& file, const S3Location& object) {
  const std::string what = "upload to " + object.text();
  if (std::filesystem::file_size(file) > kLargestUpload) {
    throw smp::ConfigError(
        "{}: {} is larger than 5 GiB, which S3 takes in one request; write it in "
        "parts, or to the checkpoint folder",
        what, file.filename().string());
  }
  exchange(object, {.method = "PUT", .headers = {kUnsignedBody}, .from_file = file}, what);
}

}  // namespace entrypoint::fetch
