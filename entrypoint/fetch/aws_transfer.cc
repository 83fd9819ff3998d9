// SPDX-License-Identifier: Apache-2.0
// The Transfer with libcurl, libarchive and AWS, which libsmp_transfer.so exports for the launcher.
// Both sides come from one build, so that the C++ interface and its exceptions may cross.
#include <algorithm>
#include <memory>
#include <system_error>

#include "entrypoint/fetch/archive.h"
#include "entrypoint/fetch/aws_access.h"
#include "entrypoint/fetch/aws_services.h"
#include "entrypoint/fetch/transfer_module.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;

void log_warnings(const Unpacked& unpacked) {
  for (const std::string& warning : unpacked.warnings) SMP_LOG(warning, "{}", warning);
}

bool has_archive_name(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr const char* kEndings[] = {".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"};
  return std::ranges::any_of(kEndings, [&](const char* end) { return name.ends_with(end); });
}

class AwsTransfer final : public Transfer {
 public:
  explicit AwsTransfer(const TransferSettings& settings)
      : limits_(settings.limits), aws_(settings.environment, settings.job_region) {}

  void unpack_object(const S3Location& object, const fs::path& folder,
                     const fs::path& scratch) override {
    aws_.s3.download(object, scratch, most_bytes(limits_, scratch.parent_path()));
    const Unpacked unpacked = unpack(scratch, folder, limits_);
    std::error_code ignored;
    const auto size = fs::file_size(scratch, ignored);
    fs::remove(scratch, ignored);
    if (!unpacked.is_archive) {
      throw smp::ConfigError(
          "{}: its {} bytes are no tar.gz archive ({}); sagemaker_submit_directory names the "
          "archive of the code, not a folder or a script",
          object.text(), size, unpacked.refusal);
    }
    log_warnings(unpacked);
    SMP_LOG(info, "fetched {}: {} members, {} bytes", object.text(), unpacked.members, size);
  }

  bool unpack_file(const fs::path& file, const fs::path& folder) override {
    const Unpacked unpacked = unpack(file, folder, limits_);
    if (unpacked.is_archive) {
      log_warnings(unpacked);
      SMP_LOG(info, "unpacked {}: {} members", file.string(), unpacked.members);
    } else if (has_archive_name(file)) {
      throw smp::ConfigError("{}: is no tar archive: {}", file.string(), unpacked.refusal);
    }
    return unpacked.is_archive;
  }

  void upload(const fs::path& file, const S3Location& object) override {
    aws_.s3.upload(file, object);
  }

  std::string package_index(const PackageRepository& repository) override {
    const std::string endpoint = smp::value_or(aws_.environment, "AWS_ENDPOINT_URL_CODEARTIFACT",
                                               smp::value_or(aws_.environment, "AWS_ENDPOINT_URL"));
    return package_index_url(repository, endpoint, aws_.credentials, *aws_.client, aws_.policy);
  }

 private:
  ArchiveLimits limits_;
  AwsAccess aws_;
};

}  // namespace
}  // namespace entrypoint::fetch

extern "C" __attribute__((visibility("default"))) entrypoint::fetch::Transfer* smp_make_transfer(
    const entrypoint::fetch::TransferSettings* settings) {
  smp::log::configure(settings->log_name, static_cast<smp::log::Level>(settings->log_threshold));
  smp::log::mask_messages(settings->log_mask);
  return std::make_unique<entrypoint::fetch::AwsTransfer>(*settings).release();
}
