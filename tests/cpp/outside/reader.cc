// SPDX-License-Identifier: Apache-2.0
// A program without Torch that reads its job.
#include <iostream>

#include <smp/error.h>
#include <smp/job.h>

int main() {
  const smp::Job job = smp::Job::from_environment();
  std::cout << job.integer("epochs") << '\n' << job.channel("training").filename().string() << '\n';
  try {
    std::cout << job.text("epoch") << '\n';
  } catch (const smp::ConfigError& error) {
    std::cout << error.what() << '\n';
  }
}
