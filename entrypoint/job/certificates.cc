// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/certificates.h"

#include <string>
#include <system_error>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/text_file.h"

namespace entrypoint {

void join_certificates(const ExtraCertificates& certificates) {
  const std::string extra = smp::read_text(certificates.extra);
  if (extra.find("-----BEGIN CERTIFICATE-----") == std::string::npos) {
    throw smp::ConfigError(
        "SMP_EXTRA_CA_FILE={}: {}; bind a file of PEM certificates into the container, or unset it",
        certificates.extra.string(),
        extra.empty() ? "no such file, or it is empty" : "it holds no PEM certificate");
  }
  std::string text = smp::read_text(certificates.system);
  if (text.empty()) {
    SMP_LOG(warning, "{} is not there: only the authorities of {} are trusted",
            certificates.system.string(), certificates.extra.string());
  } else if (text.back() != '\n') {
    text += '\n';
  }
  std::error_code failed;
  std::filesystem::create_directories(certificates.joined.parent_path(), failed);
  smp::replace_text(certificates.joined, text + extra, smp::kForOwner);
}

}  // namespace entrypoint
