// SPDX-License-Identifier: Apache-2.0
// A training program that is no Python, for tests of how the launcher starts one: it says which
// rank it is, what it was called with and what its job has, and ends as its hyperparameters want
// it.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>

#include "smp/job.h"

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
  const smp::Job job = smp::Job::from_environment();
  for (const std::string& name : job.hyperparameters()) {
    std::cout << "job: " << name << '=' << job.text(name) << std::endl;
  }
  if (job.has("throw") && (rank == "-" || rank == "1")) {
    throw std::runtime_error(job.text("throw"));
  }
  return static_cast<int>(job.integer("exit", 0));
}
