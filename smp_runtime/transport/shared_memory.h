// SPDX-License-Identifier: Apache-2.0
// Memory that processes of one host share.
//
// It is a memfd: it has no name in any folder, is not limited by the size of /dev/shm (64 MiB in a
// container by default), and is gone with its last user, however that ended. Another process of
// the same user opens it through /proc/PID/fd.
#pragma once

#include <cstddef>
#include <string>

#include "smp_runtime/core/file.h"

namespace smp::transport {

/// A mapping, unmapped at the end. Pages cost memory once they are touched.
class SharedMemory {
 public:
  /// New, zeroed. Throws HostError.
  static SharedMemory create(size_t size_bytes);
  /// Maps what `address()` of another process named. Throws HostError if it is not there, may not
  /// be opened, is of another size, or is nothing that create() made, whose size stays.
  static SharedMemory open(const std::string& address, size_t size_bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  /// For open() in other processes of the host, until close_address().
  [[nodiscard]] std::string address() const;
  /// From here on nobody can open it any more.
  void close_address() { file_.close(); }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size_bytes() const { return size_; }

 private:
  SharedMemory(FileDescriptor file, size_t size_bytes);

  FileDescriptor file_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace smp::transport
