// SPDX-License-Identifier: Apache-2.0
// Waits of ranks, a line each, as the job's store may hold them: what is one is the same once
// written, and the search among them ends with a path of ranks that there are.
#include "smp_runtime/core/text.h"
#include "smp_runtime/session/deadlock/wait_graph.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  using namespace smp::session;
  std::map<int, Wait> waits;
  int rank = 0;
  for (const std::string& line : smp::split(fuzz::text_of(bytes, count), '\n')) {
    const auto wait = decode(line);
    if (wait) {
      fuzz::require(decode(encode(*wait)) == wait);
      waits[rank] = *wait;
    }
    ++rank;
  }
  for (const auto& [who, wait] : waits) {
    const std::vector<int> path = deadlock_of(waits, who);
    if (path.empty()) continue;
    fuzz::require(path.front() == who);
    for (const int one : path) fuzz::require(waits.contains(one));
    fuzz::require(!deadlock_text(waits, path).empty());
  }
  return 0;
}
