// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/extra_certificates.h"

namespace entrypoint {

std::optional<ExtraCertificates> plan_certificates(const EnvironmentMap& environment,
                                                   const opt_ml::Layout& layout) {
  const std::string extra = value_or(environment, "SMP_EXTRA_CA_FILE");
  if (extra.empty()) return std::nullopt;
  ExtraCertificates certificates{
      .system = value_or(environment, "SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"),
      .extra = extra,
      .joined = layout.certificates(),
      .variables = {},
      .kept = {}};
  for (const char* name :
       {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "PIP_CERT"}) {
    const std::string own = value_or(environment, name);
    const bool replaces = own.empty() || own == certificates.system;
    (replaces ? certificates.variables : certificates.kept).emplace_back(name);
  }
  return certificates;
}

}  // namespace entrypoint
