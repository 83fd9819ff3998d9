// SPDX-License-Identifier: Apache-2.0
// Frames as a rank of the same host may write them into this one's memory: no byte lands outside of
// what a receive was posted for, nothing is allocated for what is only announced, and what does
// not fit is refused with an InternalError.
#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>
#include <vector>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/plain_bytes.h"
#include "smp_runtime/transport/link_frame.h"
#include "smp_runtime/transport/shared_memory_link.h"
#include "smp_runtime/transport/shared_ring.h"
#include "tests/fuzz/target.h"

namespace {

using namespace smp::transport;  // a program, not a header
using Frame = LinkFrame;

constexpr int kReceives = 3;
constexpr std::size_t kFew = 24;
constexpr std::size_t kMany = SharedMemoryLink::kShortBytes + 1;
constexpr std::uint64_t kTag = 5;
constexpr std::size_t kMemory = smp::kCacheLineBytes;

std::size_t memory_bytes() { return kMemory + 2 * SharedRing::size_bytes(); }

/// Rank 0 of two, into whose memory this program writes as rank 1 would.
struct Pair {
  Pair()
      : link(0, {"rank 0", "rank 1"}), written(SharedMemory::open(link.address(), memory_bytes())) {
    link.connect(1, "rank 1", peer.address());
    for (int number = 0; number < kReceives; ++number) {
      received.emplace_back(kFew);
      handles.push_back(link.receive(1, kTag, received.back()));
    }
    handles.push_back(link.send(1, kTag, sent));
    link.wait_for_change(std::chrono::milliseconds(0));
  }

  /// False: what was written is no frame.
  bool write(std::span<const std::byte> bytes) {
    SharedRing ring(written.data() + kMemory + SharedRing::size_bytes());
    try {
      while (!bytes.empty()) {
        bytes = bytes.subspan(ring.write_some(bytes));
        link.wait_for_change(std::chrono::milliseconds(0));
      }
    } catch (const smp::InternalError&) {
      return false;
    }
    return true;
  }

  std::vector<std::byte> sent = std::vector<std::byte>(kMany);
  std::vector<std::vector<std::byte>> received;
  SharedMemory peer = SharedMemory::create(memory_bytes());
  SharedMemoryLink link;
  SharedMemory written;
  std::vector<Link::Handle> handles;
};

std::string frame_text(const Frame& frame, const std::string& body = "") {
  std::string text;
  smp::append_plain(text, frame);
  return text + body;
}

std::string short_text(std::size_t size) {
  return frame_text({.kind = Frame::Kind::kShort, .tag = kTag, .size = size},
                    std::string(size, 's'));
}

}  // namespace

std::map<std::string, std::string> fuzz::made_inputs() {
  using enum Frame::Kind;
  const std::string hello = "/proc/1/fd/3";
  return {
      {"hello", frame_text({.kind = kHello, .size = hello.size()}, hello) + short_text(kFew)},
      {"long", short_text(kFew) +
                   frame_text({.kind = kRequestToSend, .tag = kTag, .number = 1, .size = kFew}) +
                   frame_text({.kind = kData, .number = 1, .size = kFew}, std::string(kFew, 'd'))},
      {"clear", frame_text({.kind = kClearToSend, .number = 1}) + short_text(kFew)},
      {"gone", short_text(kFew) +
                   frame_text({.kind = kRequestToSend, .tag = kTag, .number = 1, .size = kFew}) +
                   frame_text({.kind = kGone, .number = 1}) + short_text(kFew)},
      {"unexpected", short_text(1) + short_text(2) + short_text(3) + short_text(4)},
      {"more_data_than_asked",
       short_text(kFew) +
           frame_text({.kind = kRequestToSend, .tag = kTag, .number = 1, .size = kFew}) +
           frame_text({.kind = kData, .number = 1, .size = 2 * kFew}, std::string(2 * kFew, 'd'))},
      {"announced_only", frame_text({.kind = kShort, .size = std::size_t{1} << 60})},
      {"no_kind", frame_text({.kind = Frame::Kind{9}})},
      {"asked_twice",
       short_text(kFew) +
           frame_text({.kind = kRequestToSend, .tag = kTag, .number = 1, .size = kFew}) +
           frame_text({.kind = kRequestToSend, .tag = kTag, .number = 1, .size = kFew})}};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  Pair pair;
  if (!pair.write(std::as_bytes(std::span(bytes, count)))) return 0;
  for (const Link::Handle& handle : pair.handles) pair.link.cancel(handle);
  // What is under way when nobody wants it any more is still read.
  static_cast<void>(pair.write(std::as_bytes(std::span(bytes, count))));
  return 0;
}
