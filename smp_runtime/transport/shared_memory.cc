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
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string why_not_opened(int error) {
  if (error == ENOENT) {
    return "it is gone, and the process that made it has ended or given up; see its output";
  }
  if (error == EACCES || error == EPERM) {
    return fmt::format(
        "{}; this process (user {}) may not look into that one: ranks of a host run as one user, "
        "and do not become another one or get capabilities of their own before they make groups",
        std::strerror(error), geteuid());
  }
  return system_error_text(error);
}

}  // namespace

SharedMemory SharedMemory::create(size_t size_bytes) {
  FileDescriptor file(memfd_create("smddp", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) throw HostError("memfd_create failed: {}", system_error_text(errno));
  if (ftruncate(file.get(), static_cast<off_t>(size_bytes)) != 0) {
    throw HostError("cannot make {} bytes of shared memory: {}", size_bytes,
                    system_error_text(errno));
  }
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    throw HostError("cannot seal shared memory: {}", system_error_text(errno));
  }
  return {std::move(file), size_bytes};
}

SharedMemory SharedMemory::open(const std::string& address, size_t size_bytes) {
  FileDescriptor file(::open(address.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) {
    throw HostError("cannot open the shared memory {} of another rank on this host: {}", address,
                    why_not_opened(errno));
  }
  struct stat found {};
  if (fstat(file.get(), &found) != 0 || static_cast<size_t>(found.st_size) != size_bytes) {
    throw HostError("the shared memory {} has {} bytes, expected {}; do all ranks run one version?",
                    address, found.st_size, size_bytes);
  }
  // The end of a file that is cut while it is mapped ends who touches it.
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    throw HostError("{} is not memory that a rank shares: its size can be changed", address);
  }
  SharedMemory segment(std::move(file), size_bytes);
  segment.close_address();
  return segment;
}

SharedMemory::SharedMemory(FileDescriptor file, size_t size_bytes)
    : file_(std::move(file)), size_(size_bytes) {
  void* mapped = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (mapped == MAP_FAILED) {
    throw HostError("cannot map {} bytes of shared memory: {}", size_bytes,
                    system_error_text(errno));
  }
  data_ = static_cast<std::byte*>(mapped);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

std::string SharedMemory::address() const {
  SMP_CHECK(file_.is_open(), "the address is closed");
  return fmt::format("/proc/{}/fd/{}", getpid(), file_.get());
}

}  // namespace smp::transport
