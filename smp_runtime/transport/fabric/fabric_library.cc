// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/fabric_library.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include <dlfcn.h>

#include "smp_runtime/core/error.h"

namespace smp::transport {
namespace {

constexpr const char* kName = "libfabric.so.1";
// The loader's own search, then where EFA's installer puts it: as .deb and as .rpm.
constexpr std::array kPlaces = {kName, "/opt/amazon/efa/lib/libfabric.so.1",
                                "/opt/amazon/efa/lib64/libfabric.so.1"};

/// Puts back the handlers of all signals that were changed meanwhile.
class SignalHandlersKept {
 public:
  SignalHandlersKept() {
    for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, nullptr, &at(signal));
  }
  ~SignalHandlersKept() {
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction now {};
      if (sigaction(signal, nullptr, &now) != 0) continue;
      if (now.sa_sigaction != at(signal).sa_sigaction) sigaction(signal, &at(signal), nullptr);
    }
  }
  SignalHandlersKept(const SignalHandlersKept&) = delete;
  SignalHandlersKept& operator=(const SignalHandlersKept&) = delete;

 private:
  struct sigaction& at(int signal) {
    return before_[static_cast<size_t>(signal)];
  }

  std::array<struct sigaction, NSIG> before_{};
};

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) throw ConfigError("{} has no function {}: {}", kName, name, dlerror());
}

}  // namespace

FabricLibrary::FabricLibrary() {
  const SignalHandlersKept kept;
  void* library = nullptr;
  std::string reason;  // of the first place, which every image has
  for (const char* place : kPlaces) {
    library = dlopen(place, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    if (reason.empty()) reason = dlerror();
  }
  if (library == nullptr) {
    throw ConfigError(
        "libfabric, which carries messages between hosts, cannot be loaded: {}; install Debian's "
        "libfabric1 or EFA's, or add its folder to LD_LIBRARY_PATH",
        reason);
  }
  find(library, "fi_getinfo", getinfo_);
  find(library, "fi_fabric", fabric_);
  find(library, "fi_freeinfo", freeinfo);
  find(library, "fi_dupinfo", dupinfo);
  find(library, "fi_strerror", strerror);
  find(library, "fi_version", version);
}

void set_fabric_defaults() {
  constexpr int kKeep = 0;
  // Over TCP it cuts longer messages into pieces of 16 KiB and waits for answers between them,
  // which leaves a slow network idle for a third of the time.
  setenv("FI_OFI_RXM_EAGER_LIMIT", "262144", kKeep);
  // An endpoint over TCP posts 4096 buffers of 16 KiB for what comes, and keeps as many for sends:
  // 90 MB that messages hardly use, as they are read into their own memory. These let it take 3 MB.
  setenv("FI_OFI_RXM_BUFFER_SIZE", "256", kKeep);
  setenv("FI_OFI_RXM_MSG_RX_SIZE", "64", kKeep);
  setenv("FI_OFI_RXM_RX_SIZE", "1024", kKeep);
  setenv("FI_OFI_RXM_TX_SIZE", "1024", kKeep);
  // Over EFA, memory that the device writes to must stay the parent's when a DataLoader forks.
  setenv("FI_EFA_FORK_SAFE", "1", kKeep);
}

const FabricLibrary& FabricLibrary::get() {
  static const FabricLibrary library;
  return library;
}

int FabricLibrary::getinfo(uint32_t api, const char* node, const char* service, uint64_t flags,
                           const fi_info* hints, fi_info** info) const {
  const SignalHandlersKept kept;
  return getinfo_(api, node, service, flags, hints, info);
}

int FabricLibrary::fabric(fi_fabric_attr* attributes, fid_fabric** fabric) const {
  const SignalHandlersKept kept;
  return fabric_(attributes, fabric, nullptr);
}

}  // namespace smp::transport
