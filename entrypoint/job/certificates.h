// SPDX-License-Identifier: Apache-2.0
// Puts the certificate authorities of machine and job into one file.
#pragma once

#include "entrypoint/plan/extra_certificates.h"

namespace entrypoint {

/// Writes `joined`. A machine without a file of its own adds none. Throws ConfigError when the
/// job's file cannot be read or holds no certificate, HostError when the result cannot be written.
void join_certificates(const ExtraCertificates& certificates);

}  // namespace entrypoint
