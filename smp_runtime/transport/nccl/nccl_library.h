// SPDX-License-Identifier: Apache-2.0
// NCCL's calls that the runtime uses. An interface, so that deadlines, aborts and the order of
// messages can be tested where no GPU is.
//
// Nothing here waits: communicators are NCCL's non-blocking ones. A call that is "in progress" goes
// on in a thread of NCCL, and no other call may be made on the communicator, but for state() and
// abort(), until state() says that it is done. An end goes by finalize() and destroy(), or by
// abort().
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <c10/core/ScalarType.h>

#include "smp_runtime/core/element_type.h"

struct ncclComm;

namespace smp::transport {

/// Identity of a communicator, by which its ranks find each other; made by one of them.
using NcclId = std::array<char, 128>;

struct NcclOutcome {
  enum class State { kDone, kInProgress, kFailed };
  State state = State::kDone;
  std::string reason;  ///< of a failure, in NCCL's words
};

/// One call of a group, on memory of the device. `count` is in elements: of `from` for sends and
/// gathers, of `to` for what is received and for scattered sums.
struct NcclOperation {
  enum class Kind { kSend, kReceive, kAllReduce, kReduceScatter, kAllGather, kBroadcast };
  Kind kind{};
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  c10::ScalarType type = c10::ScalarType::Byte;
  ReduceOp reduction = ReduceOp::kSum;
  int peer = -1;  ///< also the root of a broadcast
};

class NcclLibrary {
 public:
  using Handle = ncclComm*;
  virtual ~NcclLibrary() = default;

  /// Throws HostError if NCCL finds no way to reach other processes.
  [[nodiscard]] virtual NcclId new_id() = 0;
  /// Starts to make an end of a communicator; `made` is to be destroyed or aborted in any case.
  [[nodiscard]] virtual NcclOutcome begin(Handle& made, const NcclId& id, int rank, int size) = 0;
  /// Starts the operations together, behind what `stream` was given so far.
  [[nodiscard]] virtual NcclOutcome launch(Handle communicator,
                                           std::span<const NcclOperation> operations,
                                           void* stream) = 0;
  /// State of the call in progress, and of what the device has done with those before.
  [[nodiscard]] virtual NcclOutcome state(Handle communicator) = 0;
  /// Starts to close an end that works, behind all that it was given.
  [[nodiscard]] virtual NcclOutcome finalize(Handle communicator) = 0;
  /// Frees an end that is closed.
  virtual void destroy(Handle communicator) = 0;
  /// Stops what is under way, on the device too, and frees the end.
  virtual void abort(Handle communicator) = 0;
};

/// The library that Torch brings, for one device; null in a build without GPU code.
[[nodiscard]] std::unique_ptr<NcclLibrary> nccl_library(int cuda_device);

/// Tells the GPU behind a device number, the same in all processes of a host.
/// Throws HostError if there is none, InternalError in a build without GPU code.
[[nodiscard]] std::string gpu_identity(int cuda_device);

/// E.g. 22809; 0 in a build without GPU code.
[[nodiscard]] int nccl_version();

}  // namespace smp::transport
