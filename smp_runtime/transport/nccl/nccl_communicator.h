// SPDX-License-Identifier: Apache-2.0
// One end of an NCCL communicator: from its making to its end, with a limit on every wait.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <span>
#include <string>

#include "smp_runtime/transport/nccl/nccl_library.h"
#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

/// For one thread at a time, but for abort(). What fails or takes too long aborts the communicator,
/// which stops what waits on the device, too: it is of no use any more, and all calls throw. What
/// was started is to be waited for.
class NcclCommunicator {
 public:
  struct Place {
    int rank;
    int size;
    std::string name;  ///< for messages, e.g. "NCCL from rank 0 to rank 1"
  };

  /// Starts to make it; the other ranks are met in connect(). `library` outlives it.
  NcclCommunicator(NcclLibrary& library, const NcclId& id, Place place);
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  /// Closes it, if all that was started has ended well; where other ranks do not let it close
  /// within kCloseLimit, and otherwise, aborts.
  ~NcclCommunicator();

  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.size; }

  /// Waits for the other ranks. Throws HostError.
  void connect(const WaitLimit& limit);

  /// Gives `stream` the operations, in groups of kMostTogether, and returns once they are in its
  /// order; the device does them later. All ranks give operations that fit, in one order.
  void start(std::span<const NcclOperation> operations, void* stream, const WaitLimit& limit);
  /// Waits until `reached`, meanwhile looking for NCCL's errors.
  void wait_until(const std::function<bool()>& reached, const WaitLimit& limit);

  /// Ends what waits and all that is called later with this reason; the first one counts. Where
  /// nothing is under way, nothing is aborted on the device.
  void abort(const std::string& reason);

  /// Two ends may cut longer groups differently, and then wait for each other (pytorch#174942).
  static constexpr size_t kMostTogether = 64;
  static constexpr std::chrono::seconds kCloseLimit{2};

 private:
  using Call = std::function<NcclOutcome(NcclLibrary::Handle)>;
  void complete(const Call& call, const WaitLimit& limit);
  NcclOutcome ask(const Call& call);
  void check(const NcclOutcome& outcome, const WaitLimit& limit);
  [[noreturn]] void fail(const std::string& reason);
  [[nodiscard]] bool close() const;
  void set_under_way(bool is);

  NcclLibrary& library_;
  const Place place_;

  std::mutex mutex_;  // guards what follows, and NCCL's view of the communicator
  NcclLibrary::Handle handle_ = nullptr;
  NcclOutcome begun_;
  std::string ended_;      // why; empty as long as it works
  bool under_way_ = true;  // it is being made, or something was started and not waited for
};

}  // namespace smp::transport
