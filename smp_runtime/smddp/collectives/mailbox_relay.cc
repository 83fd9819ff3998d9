// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/mailbox_relay.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "smp_runtime/core/error.h"

namespace smp::collectives {
namespace {

using Size = uint64_t;

}  // namespace

std::vector<RelayStep> relay_steps(int host, int hosts) {
  // A host has its own message and those of the hosts before it, in a circle.
  std::vector<RelayStep> steps;
  for (int had = 1; had < hosts; had *= 2) {
    RelayStep step{.to = (host + had) % hosts, .from = (host - had + hosts) % hosts};
    for (int before = 0; before < std::min(had, hosts - had); ++before) {
      step.handed.push_back((host - before + hosts) % hosts);
      step.taken.push_back((step.from - before + hosts) % hosts);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

size_t bundle_bytes(std::span<const size_t> sizes_bytes) {
  size_t bytes = 0;
  for (const size_t size : sizes_bytes) bytes += sizeof(Size) + size;
  return bytes;
}

std::vector<std::byte> bundle_of(std::span<const ConstBytes> messages) {
  std::vector<std::byte> bundle;
  for (const ConstBytes message : messages) {
    const Size size = message.size();
    const auto head = std::as_bytes(std::span(&size, 1));
    bundle.insert(bundle.end(), head.begin(), head.end());
    bundle.insert(bundle.end(), message.begin(), message.end());
  }
  return bundle;
}

void unbundle(ConstBytes bundle, std::span<Bytes* const> rooms) {
  ConstBytes rest = bundle;
  const auto check = [&](bool fits) {
    if (fits) return;
    throw HostError(
        "{} bytes that came as mailboxes of {} hosts are none; another process has "
        "sent them",
        bundle.size(), rooms.size());
  };
  for (Bytes* const room : rooms) {
    Size size = 0;
    check(rest.size() >= sizeof(size));
    std::memcpy(&size, rest.data(), sizeof(size));
    rest = rest.subspan(sizeof(size));
    check(size <= rest.size() && size <= room->size());
    copy(*room, rest.first(size));
    *room = room->first(size);
    rest = rest.subspan(size);
  }
  check(rest.empty());
}

}  // namespace smp::collectives
