// SPDX-License-Identifier: Apache-2.0
// Everything that needs libcurl or libarchive, behind one interface: it lives in a shared module of
// its own, so that jobs that fetch nothing do not even map those libraries.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "entrypoint/config/aws_location.h"
#include "entrypoint/fetch/archive.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint::fetch {

/// One thread at a time. Every call blocks until it is done, retries included; errors are
/// ConfigError for what the user can correct and HostError for the rest, and name what was wanted.
class Transfer {
 public:
  virtual ~Transfer() = default;

  /// Downloads an archive to `scratch` (a file, removed again) and unpacks it into `folder`.
  virtual void unpack_object(const S3Location& object, const std::filesystem::path& folder,
                             const std::filesystem::path& scratch) = 0;

  /// Unpacks a local archive into `folder`. False for a file that is none, and by its name need not
  /// be.
  virtual bool unpack_file(const std::filesystem::path& file,
                           const std::filesystem::path& folder) = 0;

  /// Uploads a file.
  virtual void upload(const std::filesystem::path& file, const S3Location& object) = 0;

  /// pip's index with a token in it: a secret.
  virtual std::string package_index(const PackageRepository& repository) = 0;
};

struct TransferSettings {
  smp::Variables environment;  ///< for credentials, endpoints and the region
  std::string job_region;      ///< what the job's hyperparameters say, or empty
  ArchiveLimits limits;
  std::string log_name;  ///< load_transfer() fills these three
  int log_threshold = 0;
  smp::log::Mask log_mask;
};

/// libsmp_transfer.so of this program's installation or build tree. Never unloaded: the libraries
/// below it do not like that. Throws HostError when it or what it needs is missing.
std::unique_ptr<Transfer> load_transfer(const TransferSettings& settings);

}  // namespace entrypoint::fetch
