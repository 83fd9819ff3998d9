// SPDX-License-Identifier: Apache-2.0
// Preloaded library: a process learns its job's name for this host in place of the machine's.
//
// A container's host name has nothing to do with the job ("aws", a container id), and Open MPI and
// NCCL then take all ranks for neighbours on one machine, or do not find themselves in their list
// of hosts. gethostname() and uname() answer with the top-level `current_host` of
// resourceconfig.json; on any problem with that file they answer as always. Never prints, never
// allocates; no C++ library is linked, for this code is loaded into every process of the job.
#include <atomic>
#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace {

constexpr std::size_t kLongestName = 256;
constexpr std::size_t kLongestFile = 256 * 1024;
constexpr const char* kPlaces[] = {"/input/config/resourceconfig.json",  // training
                                   "/config/resourceconfig.json"};       // processing

/// Reads a JSON object just far enough to find one string at its top level.
class Scanner {
 public:
  Scanner(const char* text, std::size_t size) : at_(text), end_(text + size) {}

  bool find(const char* key, char* value) {
    if (!take('{')) return false;
    while (true) {
      char name[kLongestName];
      if (!read_string(name) || !take(':')) return false;
      if (strcmp(name, key) == 0) return read_string(value) && value[0] != '\0';
      if (!skip_value() || !take(',')) return false;
    }
  }

 private:
  void skip_blanks() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) ++at_;
  }

  bool take(char wanted) {
    skip_blanks();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  // Host names are plain, so an escape in the value is a reason to give up; in other strings the
  // character after a backslash is skipped, which is all it takes to find their end.
  bool read_string(char* out) {
    if (!take('"')) return false;
    std::size_t size = 0;
    bool plain = true;
    while (at_ < end_ && *at_ != '"') {
      if (*at_ == '\\') {
        plain = false;
        if (++at_ == end_) return false;
      }
      if (size + 1 < kLongestName) out[size++] = *at_;
      ++at_;
    }
    if (at_ == end_) return false;
    ++at_;
    out[plain ? size : 0] = '\0';
    return true;
  }

  bool skip_value() {
    char ignored[kLongestName];
    int depth = 0;
    while (true) {
      skip_blanks();
      if (at_ == end_) return false;
      const char c = *at_;
      if (c == '"') {
        if (!read_string(ignored)) return false;
        if (depth == 0) return true;
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        if (depth == 0) return true;  // the end of the object around a number
        ++at_;
        if (--depth == 0) return true;
      } else if (c == ',' && depth == 0) {
        return true;
      } else {
        ++at_;
      }
    }
  }

  const char* at_;
  const char* end_;
};

char file_buffer[kLongestFile];
char cached_name[kLongestName];
enum State { kUnknown, kBusy, kKnown };
std::atomic<int> state{kUnknown};

bool read_name_from(const char* base, const char* place) {
  char path[4096];
  if (strlen(base) + strlen(place) >= sizeof(path)) return false;
  strcpy(path, base);
  strcat(path, place);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::size_t size = 0;
  ssize_t count = 0;
  while (size < kLongestFile && (count = read(fd, file_buffer + size, kLongestFile - size)) > 0) {
    size += static_cast<std::size_t>(count);
  }
  close(fd);
  return count == 0 && Scanner(file_buffer, size).find("current_host", cached_name);
}

// The name, or null. The first caller reads; whoever comes while it does gets the machine's name
// rather than a wait: this runs in places where nobody may block.
const char* job_host_name() {
  int expected = kUnknown;
  if (state.compare_exchange_strong(expected, kBusy)) {
    const int error = errno;
    const char* base = getenv("SAGEMAKER_BASE_DIR");
    if (base == nullptr || base[0] == '\0') base = "/opt/ml";
    bool found = false;
    for (const char* place : kPlaces) found = found || read_name_from(base, place);
    errno = error;
    // Not found may change: some processes start before the file is there.
    expected = found ? kKnown : kUnknown;
    state.store(expected);
  }
  return expected == kKnown ? cached_name : nullptr;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int uname(utsname* info) noexcept {
  const long result = syscall(SYS_uname, info);
  if (result != 0) return -1;
  if (const char* name = job_host_name()) {
    const std::size_t size = strnlen(name, sizeof(info->nodename) - 1);
    memcpy(info->nodename, name, size);
    info->nodename[size] = '\0';
  }
  return 0;
}

__attribute__((visibility("default"))) int gethostname(char* name, std::size_t length) noexcept {
  utsname info;
  const char* source = job_host_name();
  if (source == nullptr) {
    if (syscall(SYS_uname, &info) != 0) return -1;
    source = info.nodename;
  }
  if (length == 0) {
    errno = EINVAL;
    return -1;
  }
  const std::size_t size = strnlen(source, length - 1);
  memcpy(name, source, size);
  name[size] = '\0';
  return 0;
}

}  // extern "C"
