// SPDX-License-Identifier: Apache-2.0
// The one name that libsmp_transfer.so exports. Both sides come from one build, so that the C++
// interface and its exceptions may cross.
#include "entrypoint/fetch/transfer_module.h"
#include "smp_runtime/core/log.h"

extern "C" __attribute__((visibility("default"))) entrypoint::fetch::Transfer* smp_make_transfer(
    const entrypoint::fetch::TransferSettings* settings) {
  smp::log::configure(settings->log_name, static_cast<smp::log::Level>(settings->log_threshold));
  return entrypoint::fetch::make_transfer(*settings).release();
}
