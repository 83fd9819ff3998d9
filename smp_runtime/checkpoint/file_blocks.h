// SPDX-License-Identifier: Apache-2.0
// Long files a block at a time, read and written beside the thread that has to do with their bytes.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <span>

#include <sys/types.h>

namespace smp::checkpoint {

/// A thread of its own; where none can be had whoever waits for the work does it.
inline constexpr auto kBeside = std::launch::async | std::launch::deferred;

/// Writes a file from its begin, from two buffers; on local disks past the system's cache
/// (O_DIRECT), so that no pages have to be found and filled for what nobody reads soon, as
/// FastPersist does (Wang et al. 2024, arXiv:2406.13768). One thread at a time. Members return 0,
/// or the errno of what failed, maybe of an earlier call, and then for ever.
class BlockWriter {
 public:
  /// Of a file that is open, and stays so.
  explicit BlockWriter(int file) : file_(file) {}
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  /// Takes the bytes: they may change then. Blocks while both buffers are full.
  [[nodiscard]] int write(std::span<const std::byte> bytes);
  /// Blocks until all is in the file, if not yet on the disk.
  [[nodiscard]] int finish();

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Block = std::unique_ptr<std::byte[], Free>;

  static Block make_block();
  [[nodiscard]] int begin_block();
  [[nodiscard]] int await_block();
  [[nodiscard]] int put(std::span<const std::byte> bytes);
  bool go_direct(bool is_direct);

  const int file_;
  Block filling_;
  std::size_t filled_ = 0;
  Block leaving_;  ///< once a block was full
  int failure_ = 0;
  // Of the thread that writes `leaving_`, while there is one:
  bool is_direct_ = false;
  off_t end_ = 0;             ///< of what is in the file
  std::future<int> writing_;  ///< last: its end waits for that thread
};

/// Calls `take` with what `file`, which is open, holds from its begin on, in order. Meanwhile
/// threads read what follows: on a local disk two, since one alone is busy with finding pages for
/// it; else one, in order, as readers ahead of networks expect it. Returns 0, or the errno of what
/// failed.
[[nodiscard]] int read_blocks(int file,
                              const std::function<void(std::span<const std::byte>)>& take);

}  // namespace smp::checkpoint
