// SPDX-License-Identifier: Apache-2.0
// Preloaded library: a process learns its job's name for this host in place of the machine's.
//
// A container's host name has nothing to do with the job ("aws", a container id), and Open MPI and
// NCCL then take all ranks for neighbours on one machine, or do not find themselves in their list
// of hosts. gethostname() and uname() answer with the top-level `current_host` of
// resourceconfig.json; on any problem with that file they answer as always. Never prints, takes no
// lock and nothing of malloc's; no C++ library is linked, for this code is loaded into every
// process of the job.
#include <atomic>
#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace {

constexpr std::size_t kLongestName = 256;
constexpr std::size_t kLongestFile = 64 * 1024 * 1024;  // thousands of hosts are far below it
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

char cached_name[kLongestName];
enum State { kUnknown, kWriting, kKnown };
std::atomic<int> state{kUnknown};

/// The file's text in memory of its own; a mapping of the file would fault if it shrank.
class FileText {
 public:
  explicit FileText(const char* path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat about;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0 &&
        static_cast<std::size_t>(about.st_size) <= kLongestFile) {
      read_from(fd, static_cast<std::size_t>(about.st_size));
    }
    close(fd);
  }
  ~FileText() {
    if (text_ != nullptr) munmap(text_, capacity_);
  }
  FileText(const FileText&) = delete;
  FileText& operator=(const FileText&) = delete;

  const char* text() const { return static_cast<const char*>(text_); }
  std::size_t size() const { return size_; }

 private:
  void read_from(int fd, std::size_t capacity) {
    void* memory =
        mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    text_ = memory;
    capacity_ = capacity;
    ssize_t count = 0;
    while (size_ < capacity &&
           (count = read(fd, static_cast<char*>(memory) + size_, capacity - size_)) > 0) {
      size_ += static_cast<std::size_t>(count);
    }
  }

  void* text_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
};

bool read_name_from(const char* base, const char* place, char* name) {
  char path[4096];
  if (strlen(base) + strlen(place) >= sizeof(path)) return false;
  strcpy(path, base);
  strcat(path, place);
  const FileText file(path);
  return Scanner(file.text(), file.size()).find("current_host", name);
}

// False: the machine's own name it is. Threads that ask at once all read, and one of them keeps
// what it found: nobody waits and nobody gets the wrong name.
bool find_job_host_name(char* name) {
  if (state.load(std::memory_order_acquire) == kKnown) {
    strcpy(name, cached_name);
    return true;
  }
  const int error = errno;
  const char* base = getenv("SAGEMAKER_BASE_DIR");
  if (base == nullptr || base[0] == '\0') base = "/opt/ml";
  bool found = false;
  for (const char* place : kPlaces) found = found || read_name_from(base, place, name);
  errno = error;
  int expected = kUnknown;
  // Not found may change: some processes start before the file is there.
  if (found && state.compare_exchange_strong(expected, kWriting)) {
    strcpy(cached_name, name);
    state.store(kKnown, std::memory_order_release);
  }
  return found;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int uname(utsname* info) noexcept {
  const long result = syscall(SYS_uname, info);
  if (result != 0) return -1;
  char name[kLongestName];
  if (find_job_host_name(name)) {
    const std::size_t size = strnlen(name, sizeof(info->nodename) - 1);
    memcpy(info->nodename, name, size);
    info->nodename[size] = '\0';
  }
  return 0;
}

__attribute__((visibility("default"))) int gethostname(char* name, std::size_t length) noexcept {
  char source[kLongestName];
  if (!find_job_host_name(source)) {
    utsname info;
    if (syscall(SYS_uname, &info) != 0) return -1;
    strcpy(source, info.nodename);
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
