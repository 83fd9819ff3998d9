// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target once on every file below the folder that is named: a plain test of what the
// fuzzer found worth keeping. Seeds that the target can make must be what it makes today.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/target.h"

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// True if all seeds that the target makes are in the folder; writes them first where it is asked.
bool has_made_inputs(const fs::path& folder) {
  if (fuzz::made_inputs == nullptr) return true;
  bool all = true;
  for (const auto& [name, bytes] : fuzz::made_inputs()) {
    if (std::getenv("SMP_UPDATE_GOLDEN") != nullptr) {
      fs::create_directories(folder);
      std::ofstream(folder / name, std::ios::binary) << bytes;
    }
    if (fs::exists(folder / name) && read(folder / name) == bytes) continue;
    std::fprintf(stderr, "%s is not what is written today; SMP_UPDATE_GOLDEN=1 renews it\n",
                 (folder / name).c_str());
    all = false;
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  int files = 0;
  bool fresh = true;
  for (int i = 1; i < argc; ++i) {
    if (!has_made_inputs(argv[i])) fresh = false;
    for (const auto& entry : fs::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      const std::string bytes = read(entry.path());
      // A target that aborts leaves the name of its input as the last line.
      std::fprintf(stderr, "%s\n", entry.path().c_str());
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++files;
    }
  }
  std::printf("replayed %d inputs\n", files);
  return files > 0 && fresh ? 0 : 1;  // an empty corpus tests nothing
}
