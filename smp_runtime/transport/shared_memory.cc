// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/shared_memory.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"

namespace smp::transport {

SharedMemory SharedMemory::create(size_t size_bytes) {
  const int file = memfd_create("smddp", MFD_CLOEXEC);
  if (file < 0) throw HostError("memfd_create failed: {}", std::strerror(errno));
  if (ftruncate(file, static_cast<off_t>(size_bytes)) != 0) {
    const int error = errno;
    ::close(file);
    throw HostError("cannot make {} bytes of shared memory: {}", size_bytes, std::strerror(error));
  }
  return {file, size_bytes};
}

SharedMemory SharedMemory::open(const std::string& address, size_t size_bytes) {
  const int file = ::open(address.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    throw HostError(
        "cannot open the shared memory {} of another rank on this host: {}; do all ranks of the "
        "host run as one user and see each other in /proc?",
        address, std::strerror(errno));
  }
  struct stat found {};
  if (fstat(file, &found) != 0 || static_cast<size_t>(found.st_size) != size_bytes) {
    ::close(file);
    throw HostError("the shared memory {} has {} bytes, expected {}; do all ranks run one version?",
                    address, found.st_size, size_bytes);
  }
  SharedMemory segment(file, size_bytes);
  segment.close_address();
  return segment;
}

SharedMemory::SharedMemory(int file, size_t size_bytes) : file_(file), size_(size_bytes) {
  void* mapped = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close_address();
    throw HostError("cannot map {} bytes of shared memory: {}", size_bytes, std::strerror(error));
  }
  data_ = static_cast<std::byte*>(mapped);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory::~SharedMemory() {
  close_address();
  if (data_ != nullptr) munmap(data_, size_);
}

std::string SharedMemory::address() const {
  SMP_CHECK(file_ >= 0, "the address is closed");
  return fmt::format("/proc/{}/fd/{}", getpid(), file_);
}

void SharedMemory::close_address() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

}  // namespace smp::transport
