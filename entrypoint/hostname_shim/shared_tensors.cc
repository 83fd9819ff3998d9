// SPDX-License-Identifier: Apache-2.0
// Preloaded with the host name: PyTorch's shared tensors have room where /dev/shm is small.
//
// A DataLoader's workers hand their batches over in files of shm_open(), whichever sharing strategy
// is set: torch's `file_system` differs from `file_descriptor` in who removes the file, not in
// where it lies. /dev/shm has 64 MiB in a container of which nobody said more, and managed services
// let nobody say it. There, files of PyTorch's names are made in TMPDIR, or /tmp. They are removed
// while they are in use, so little of them ever gets to the disk. Names of others stay in /dev/shm.
//
// As in hostname_shim.cc: never prints, takes no lock and nothing of malloc's, no C++ library.
#include <cerrno>
#include <cstdint>

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace {

constexpr const char* kUsual = "/dev/shm";
constexpr const char* kPrefix = "torch_";
constexpr std::uint64_t kEnough = std::uint64_t{1} << 30;  // as `train --doctor` judges it

const char* other_folder() {
  const char* named = getenv("TMPDIR");
  return named != nullptr && named[0] == '/' ? named : "/tmp";
}

bool is_small() {
  struct statvfs usual {};
  struct statvfs other {};
  if (statvfs(kUsual, &usual) != 0) return true;
  const std::uint64_t size = std::uint64_t{usual.f_blocks} * usual.f_frsize;
  if (size >= kEnough || statvfs(other_folder(), &other) != 0) return false;
  return std::uint64_t{other.f_bavail} * other.f_frsize > size;
}

/// FOLDER/NAME of a name as shm_open() takes it; false: it is none.
bool make_path(char (&path)[PATH_MAX], const char* folder, const char* name) {
  while (*name == '/') ++name;
  const std::size_t length = strlen(name);
  const std::size_t before = strlen(folder);
  if (length == 0 || length > NAME_MAX || strchr(name, '/') != nullptr ||
      before + length + 2 > sizeof(path)) {
    return false;
  }
  memcpy(path, folder, before);
  path[before] = '/';
  memcpy(path + before + 1, name, length + 1);
  return true;
}

bool is_torchs(const char* name) {
  while (*name == '/') ++name;
  return strncmp(name, kPrefix, strlen(kPrefix)) == 0;
}

int open_in(const char* folder, const char* name, int flags, mode_t mode) {
  char path[PATH_MAX];
  if (!make_path(path, folder, name)) {
    errno = EINVAL;
    return -1;
  }
  return open(path, flags | O_CLOEXEC | O_NOFOLLOW, mode);
}

int unlink_in(const char* folder, const char* name) {
  char path[PATH_MAX];
  if (!make_path(path, folder, name)) {
    errno = EINVAL;
    return -1;
  }
  return unlink(path);
}

}  // namespace

extern "C" {

// A name that is looked for may have been made before or after /dev/shm was mounted anew, so it is
// looked for in both places.
__attribute__((visibility("default"))) int shm_open(const char* name, int flags, mode_t mode) {
  const bool creates = (flags & O_CREAT) != 0;
  if (is_torchs(name) && (!creates || is_small())) {
    const int file = open_in(other_folder(), name, flags, mode);
    if (file >= 0) return file;
  }
  return open_in(kUsual, name, flags, mode);
}

__attribute__((visibility("default"))) int shm_unlink(const char* name) {
  if (is_torchs(name) && unlink_in(other_folder(), name) == 0) return 0;
  return unlink_in(kUsual, name);
}

}  // extern "C"
