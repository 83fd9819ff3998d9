// SPDX-License-Identifier: Apache-2.0
// Averages whole gradients over the ranks of a group, in buckets, while backwards still run; those
// of sharded or 16-bit state go through sharding/shard_gradients.h.
//
// c10d's reducer decides at forward time whether the next backward reduces, which is wrong with
// several forwards under way. This one learns in a step, whose buckets it sends at the end, how
// often each parameter gets a gradient and in which order they are final. It sends a bucket of the
// next step as soon as all of its gradients have come that often. What comes later than learned is
// sent once more, at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace c10d {
class CommHookInterface;
}  // namespace c10d

namespace smp::record {
class Recorder;
}  // namespace smp::record
namespace smp::session {
class DeadlockDetector;
}  // namespace smp::session

namespace smp::ddp {

/// All ranks of the group make the same calls in the same order. Gradients may come from any
/// thread, one at a time.
class GradientReducer {
 public:
  struct Options {
    std::string group_name;  ///< a registered c10d group that reaches the parameters' devices; its
                             ///< backend (gloo, nccl, smddp) carries the gradients
    std::int64_t bucket_bytes = 0;
    bool overlap = true;   ///< false: everything at the end, in an order that no timing decides
    bool may_join = true;  ///< whether errors may advise to train inside DistributedModel.join()
    /// A c10d group of the same ranks for the CPU, by which they agree who has gradients; empty:
    /// by the other one. On GPUs the host then waits for other hosts and not for its device.
    std::string flags_group_name = {};
    std::shared_ptr<session::DeadlockDetector> watch;  ///< asked while it waits; may be none
    std::shared_ptr<record::Recorder> recorder = {};   ///< the session's, with its watch; or none
  };

  /// All ranks give the same parameters in the same order.
  GradientReducer(Options options, std::vector<at::Tensor> parameters);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Reduces buckets in place of the all-reduce and its division by the number of ranks.
  void set_comm_hook(std::unique_ptr<c10d::CommHookInterface> hook);

  /// A step begins, whose gradients are averaged at its end if `due`: unless they are accumulated
  /// over several steps and this is not the last of these.
  void begin_step(bool due);

  /// Makes every parameter's `.grad` the mean over the group. A parameter without gradient counts
  /// as zeros if another rank has one, and stays without if none has. Blocks until done, at most
  /// the group's timeout. Throws UserCodeError for sparse gradients.
  void average();

  /// Number of buckets of the last average() that were on their way before it, and of all.
  struct Progress {
    std::int64_t early = 0;
    std::int64_t buckets = 0;
  };
  [[nodiscard]] Progress progress() const;

 private:
  class Core;
  std::shared_ptr<Core> core_;  // hooks of the parameters hold it weakly
};

}  // namespace smp::ddp
