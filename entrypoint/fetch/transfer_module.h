// SPDX-License-Identifier: Apache-2.0
// Loads the module that holds the Transfer.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "entrypoint/fetch/transfer.h"

namespace entrypoint::fetch {

struct TransferSettings {
  EnvironmentMap environment;  ///< for credentials, endpoints and the region
  std::string job_region;      ///< what the job's hyperparameters say, or empty
  std::string log_name;        ///< load_transfer() fills these two
  int log_threshold = 0;
};

/// libsmp_transfer.so of the same installation or build tree as `launcher`. Never unloaded: the
/// libraries below it do not like that. Throws HostError when it or what it needs is missing.
std::unique_ptr<Transfer> load_transfer(const std::filesystem::path& launcher,
                                        const TransferSettings& settings);

/// The Transfer itself; linked into the module, and into tests.
std::unique_ptr<Transfer> make_transfer(const TransferSettings& settings);

}  // namespace entrypoint::fetch
