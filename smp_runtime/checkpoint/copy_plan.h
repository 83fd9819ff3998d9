// SPDX-License-Identifier: Apache-2.0
// Which rank sends which file to which, so that every rank's host has the files that it wants.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace smp::checkpoint {

/// What one rank can send, with sizes in bytes, and which files its host is to have.
struct CopyWish {
  std::map<std::string, std::int64_t> offered;
  std::vector<std::string> wanted;
};

struct FileCopy {
  std::string name;
  std::int64_t bytes = 0;
  int from = 0;
  int to = 0;

  bool operator==(const FileCopy&) const = default;
};

/// One copy of every file that a host wants, to its first rank that does, and from a rank that
/// offers it or has got it by an earlier copy: where many want a file, those who have it double
/// with every round, as in a binomial tree. `hosts`: by rank. Pure. Throws HostError for a file
/// that nobody offers.
std::vector<FileCopy> plan_copies(std::span<const CopyWish> wishes, std::span<const int> hosts);

}  // namespace smp::checkpoint
