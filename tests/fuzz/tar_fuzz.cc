// SPDX-License-Identifier: Apache-2.0
// Whatever an archive says: nothing appears outside the folder it is unpacked into, no link leads
// out of it, no file in it has a special bit or is a device; and unpacking ends with a result, a
// ConfigError or a HostError.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <stdlib.h>
#include <sys/stat.h>

#include "entrypoint/fetch/archive.h"
#include "smp_runtime/core/error.h"
#include "tests/fuzz/target.h"

namespace {

namespace fs = std::filesystem;
using fuzz::require;

/// parent/input and parent/a/b/code, in memory where the machine has /dev/shm.
class Place {
 public:
  Place() {
    std::string name = fs::exists("/dev/shm") ? "/dev/shm/tar-fuzz-XXXXXX" : "/tmp/tar-fuzz-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr);
    parent_ = name;
    fs::create_directories(code());
  }
  ~Place() {
    std::error_code ignored;
    fs::remove_all(parent_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  [[nodiscard]] fs::path input() const { return parent_ / "input"; }
  [[nodiscard]] fs::path code() const { return parent_ / "a" / "b" / "code"; }

  /// Only what this program put there.
  [[nodiscard]] bool is_clean_outside() const {
    const auto count = [](const fs::path& folder) {
      return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
    };
    return count(parent_) == 2 && count(parent_ / "a") == 1 && count(parent_ / "a" / "b") == 1;
  }

 private:
  fs::path parent_;
};

bool leads_outside(const fs::path& link, const fs::path& folder) {
  std::error_code error;
  const fs::path real = fs::canonical(link, error);
  if (error) return false;  // leads nowhere
  const fs::path relative = real.lexically_relative(folder);
  return relative.empty() || *relative.begin() == "..";
}

void check_folder(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    struct stat what {};
    require(lstat(entry.path().c_str(), &what) == 0);
    require(S_ISREG(what.st_mode) || S_ISDIR(what.st_mode) || S_ISLNK(what.st_mode));
    if (S_ISLNK(what.st_mode)) {
      require(!leads_outside(entry.path(), folder));
      require(fs::read_symlink(entry.path()).is_relative());
    } else {
      require((what.st_mode & 07000U) == 0);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const Place place;
  std::ofstream(place.input(), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(count));

  try {
    const entrypoint::fetch::Unpacked unpacked =
        entrypoint::fetch::unpack(place.input(), place.code(), {.bytes = 1 << 26});
    require(unpacked.is_archive || unpacked.members == 0);
    require(unpacked.is_archive || fs::is_empty(place.code()));
  } catch (const smp::ConfigError&) {
  } catch (const smp::HostError&) {
  }

  require(place.is_clean_outside());
  check_folder(place.code());
  return 0;
}
