// SPDX-License-Identifier: Apache-2.0
// One connection between two failure detectors, and the messages on it. Writing one waits for
// nobody: what a peer does not read yet is kept, within bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/tcp.h"
#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

struct DetectorMessage {
  enum class Kind : uint32_t { kHello = 1, kFailure, kFin, kFinAck, kGone, kReady };

  Kind kind{};
  uint64_t count = 0;  ///< a rank in kHello and kGone, else collectives
  std::string text;    ///< a reason; ranks apart by blanks in kFin

  /// As it travels; of the text what fits.
  [[nodiscard]] std::string bytes() const;
  /// Takes one from the front of `bytes`; none while it is not whole.
  [[nodiscard]] static std::optional<DetectorMessage> take(std::string& bytes);
};

/// Bytes of the longest kHello.
constexpr size_t kLongestHello = 80;

/// Who a detector is for those that dial it.
struct DetectorAddress {
  std::string host;
  int port = 0;
  std::string nonce;

  [[nodiscard]] static DetectorAddress parse(const std::string& text);
  [[nodiscard]] std::string text() const;
};

/// A kHello that proves to the peer with this nonce that `rank` is of the job, or without a key
/// just has read its store.
[[nodiscard]] DetectorMessage hello_of(const std::optional<MacKey>& key, const std::string& nonce,
                                       int rank);

/// A connection to `address`, where the hello was said. Tries until the deadline and calls `look`,
/// which may throw, between two tries. Throws HostError that calls the peer `name`.
[[nodiscard]] tcp::Connection dial(const DetectorAddress& address, const std::string& name,
                                   const DetectorMessage& hello, const WaitLimit& limit,
                                   const std::function<void()>& look);

/// Safe to call from several threads, but receive(), which is for one.
class DetectorConnection {
 public:
  /// A peer whose host is gone without a word is noticed after about 30 s. Processes that this one
  /// forks give up their copies of the connection.
  explicit DetectorConnection(tcp::Connection connection);

  [[nodiscard]] int fd() const { return connection_.fd(); }
  /// False where nobody will read it: the peer is gone, or has not read for long.
  bool send(const DetectorMessage& message);
  /// True if something is left to be written, by flush() once the socket takes it.
  [[nodiscard]] bool has_backlog() const;
  void flush();
  /// Adds what has come. Returns how the connection has ended, nothing while it goes on.
  std::optional<std::string> receive(std::vector<DetectorMessage>& messages);

 private:
  void write_some();

  tcp::Connection connection_;
  ParentOnlyFile parent_only_;
  std::string received_;
  mutable std::mutex mutex_;  // guards what follows
  std::string backlog_;
  bool ended_ = false;
};

}  // namespace smp::transport
