// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "smp/version.h"
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"

namespace smp {
namespace {

/// The first two bytes of a version: versions that differ behind them have the same functions.
std::string text_of(std::uint64_t version) {
  return fmt::format("{}.{}", version >> 56, version >> 48 & 0xff);
}

/// Before main(), and before anything of the library runs against functions that have changed.
[[gnu::constructor]] void check_when_loaded() {
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr) return;  // the module's import says it
  try {
    check_torch();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(1);
  }
}

}  // namespace

void check_torch() {
  const std::uint64_t loaded = aoti_torch_abi_version();
  if (loaded >> 48 == TORCH_ABI_VERSION >> 48) return;
  throw ConfigError(
      "libsmp_runtime.so {} was built for LibTorch {} and this process has LibTorch {}; install "
      "that version, or build the library for this one",
      version(), text_of(TORCH_ABI_VERSION), text_of(loaded));
}

}  // namespace smp
