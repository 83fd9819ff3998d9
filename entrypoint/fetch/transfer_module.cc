// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/transfer_module.h"

#include <dlfcn.h>

#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::fetch {

std::unique_ptr<Transfer> load_transfer(const TransferSettings& settings) {
  const std::filesystem::path file =
      launcher_path().parent_path().parent_path() / "lib" / "smp" / "libsmp_transfer.so";
  void* const module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    throw smp::HostError(
        "code cannot be fetched: {}; install the launcher again with libcurl4 and "
        "libarchive13",
        dlerror());
  }
  using Maker = Transfer* (*)(const TransferSettings*);
  const auto make = reinterpret_cast<Maker>(dlsym(module, "smp_make_transfer"));
  if (make == nullptr) throw smp::InternalError("{}: {}", file.string(), dlerror());
  TransferSettings complete = settings;
  complete.log_name = smp::log::name();
  complete.log_threshold = static_cast<int>(smp::log::threshold());
  complete.log_mask = smp::log::message_mask();
  return std::unique_ptr<Transfer>(make(&complete));
}

}  // namespace entrypoint::fetch
