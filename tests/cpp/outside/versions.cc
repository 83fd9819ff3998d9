// SPDX-License-Identifier: Apache-2.0
// A program with Torch: which library it has, compiled for which.
#include <iostream>

#include <smp/version.h>

int main() {
  smp::check_torch();
  std::cout << SMP_VERSION_MAJOR << '.' << SMP_VERSION_MINOR << '.' << SMP_VERSION_PATCH << '\n'
            << smp::version() << '\n';
}
