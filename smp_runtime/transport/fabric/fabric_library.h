// SPDX-License-Identifier: Apache-2.0
// libfabric, loaded when the first endpoint is made.
//
// Not linked: some of its providers install handlers of SIGINT, SIGTERM, SIGSEGV and others where
// the library is loaded (Debian's loads libinfinipath, whose constructor does). A process that
// imports us keeps the handlers that it has: those are put back after the load and after each call
// that may load a provider.
#pragma once

#include <cstdint>

struct fi_info;
struct fi_fabric_attr;
struct fid_fabric;

namespace smp::transport {

/// Sets variables of libfabric that have other defaults here, where the environment does not. It
/// reads them once, when it is loaded. To be called before other threads begin.
void set_fabric_defaults();

/// The functions that libfabric exports; all others are reached through objects that they make.
/// Safe to call from several threads.
class FabricLibrary {
 public:
  /// Loads it once a process. Throws ConfigError that names the library where it is absent.
  static const FabricLibrary& get();

  /// As fi_getinfo(3), and keeps the process's signal handlers.
  int getinfo(uint32_t api, const char* node, const char* service, uint64_t flags,
              const fi_info* hints, fi_info** info) const;
  /// As fi_fabric(3), and keeps the process's signal handlers.
  int fabric(fi_fabric_attr* attributes, fid_fabric** fabric) const;

  void (*freeinfo)(fi_info*) = nullptr;
  fi_info* (*dupinfo)(const fi_info*) = nullptr;  ///< of null: an empty one
  const char* (*strerror)(int) = nullptr;
  uint32_t (*version)() = nullptr;

 private:
  FabricLibrary();

  int (*getinfo_)(uint32_t, const char*, const char*, uint64_t, const fi_info*,
                  fi_info**) = nullptr;
  int (*fabric_)(fi_fabric_attr*, fid_fabric**, void*) = nullptr;
};

}  // namespace smp::transport
