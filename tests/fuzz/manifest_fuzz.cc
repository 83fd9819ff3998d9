// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint: refused with a ConfigError, or read back the same once written.
#include "smp_runtime/checkpoint/manifest.h"
#include "smp_runtime/core/error.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  using smp::checkpoint::Manifest;
  try {
    const Manifest manifest = Manifest::from_json(fuzz::text_of(bytes, count), "manifest.json");
    fuzz::require(Manifest::from_json(manifest.to_json(), "again") == manifest);
  } catch (const smp::ConfigError&) {
  }
  return 0;
}
