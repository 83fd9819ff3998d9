// SPDX-License-Identifier: Apache-2.0
// A training program that is no Python, for tests of how the launcher starts one: it says which
// rank it is and what it was called with, and ends as its arguments want it.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>

namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "-" : value;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string rank = variable("OMPI_COMM_WORLD_RANK");
  std::string line = "rank " + rank + " of " + variable("OMPI_COMM_WORLD_SIZE") + " on " +
                     variable("SM_CURRENT_HOST") + " in " +
                     std::filesystem::current_path().filename().string() + ":";
  for (int i = 0; i < argc; ++i) line += std::string(" [") + argv[i] + "]";
  std::cout << line << std::endl;
  for (int i = 1; i + 1 < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--exit") return std::atoi(argv[i + 1]);
    if (name == "--throw" && (rank == "-" || rank == "1")) throw std::runtime_error(argv[i + 1]);
  }
  return 0;
}
