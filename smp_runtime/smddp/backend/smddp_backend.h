// SPDX-License-Identifier: Apache-2.0
// The torch.distributed backend "smddp": c10d's interface on a Communicator.
//
// A group has one thread that runs its collectives in the order of their calls. A call that is not
// asynchronous runs in the calling thread when nothing is queued, which saves two wakeups. Tensors
// that are not contiguous take a copy; those of a GPU go by NCCL (gpu_group.h) or through
// pinned memory (byte_view.h). Sums are in smddp_reductions.cc, all other collectives in
// smddp_movements.cc, send and recv in smddp_messages.cc, what GPUs need in smddp_gpus.cc.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "smp_runtime/record/traffic.h"
#include "smp_runtime/session/c10d_store.h"
#include "smp_runtime/smddp/backend/callback_threads.h"
#include "smp_runtime/smddp/backend/device_scope.h"
#include "smp_runtime/smddp/backend/gpu_group.h"
#include "smp_runtime/smddp/backend/pending_work.h"
#include "smp_runtime/smddp/backend/point_to_point.h"
#include "smp_runtime/smddp/backend/smddp_options.h"
#include "smp_runtime/smddp/collectives/communicator.h"

namespace smp::smddp {

/// Errors become c10::DistBackendError (a RuntimeError in Python) when the work is waited for;
/// arguments that can never work are refused by the call. Callbacks of futures run in threads of
/// their own, so they may wait for other works.
class SmddpBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// Tells how the rank of the job with this number ended, as far as the process knows: see
  /// end_of().
  using EndOf = std::function<std::string(int global_rank)>;

  /// Finds the other ranks; collective. `global_ranks` are for messages; empty for 0, 1, ….
  /// `end_of` may be null. Throws ConfigError or HostError.
  SmddpBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
               std::chrono::milliseconds timeout, const std::vector<int64_t>& global_ranks,
               EndOf end_of = {});
  /// Ends queued calls with an error. In a forked child it does nothing.
  ~SmddpBackend() override;
  SmddpBackend(const SmddpBackend&) = delete;
  SmddpBackend& operator=(const SmddpBackend&) = delete;

  const std::string getBackendName() const override { return "smddp"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  void setTimeout(std::chrono::milliseconds timeout) override;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  /// A barrier that is waited for. It fails as soon as a rank is known to have ended, or names all
  /// that are missing at the end of its time; with `wait_all_ranks` always the latter.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  /// Between two ranks; in their order for one pair and tag, and without order among pairs.
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  /// Calls in between become one work.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  /// A group of some of the ranks; null for the others.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;

  void setSequenceNumberForGroup() override {}  // all ranks count from 0
  uint64_t getSequenceNumberForGroup() override;
  c10d::ErrorType getError() override;

  /// Pending and later calls of every rank of the group fail.
  void abort() override;
  /// Waits for what is queued, at most the timeout, and leaves the group.
  void shutdown() override;
  /// End or leaving of another rank of the group, as far as this one knows, for a message; empty
  /// while it is there, and for ranks that are not of the group.
  [[nodiscard]] std::string end_of(int global_rank);
  /// Leaves the group at the end of a process, so that other hosts do not take it for a failure.
  /// What is queued is waited for as long as leaving may take: the other ranks make these calls,
  /// too. Of a process that has failed it ends with an error at once, here and there.
  void leave(bool failed);

 private:
  using Body = std::function<void(collectives::Communicator&, const transport::WaitLimit&)>;
  struct Task {
    c10::intrusive_ptr<PendingWork> work;
    std::string operation;
    std::chrono::milliseconds timeout;
    Body body;
    cuda::StreamEvent copied;  ///< before it the arguments are not there
    bool told_apart;           ///< somebody may have attached callbacks
  };

  /// A call as torch.distributed makes it.
  struct Call {
    c10d::OpType type;
    std::string operation;
    std::chrono::milliseconds timeout;  ///< below 0: the group's
    bool async;
    Tensors inputs;
  };
  void check_caller(const std::string& operation) const;
  WorkPtr start(const DeviceScope& scope, Call call, Tensors results, Body body);
  WorkPtr gather_unequal(const DeviceScope& scope, const Tensors& outputs, const at::Tensor& input,
                         const c10d::AllgatherOptions& options);
  WorkPtr reduce_unequal(const DeviceScope& scope, const at::Tensor& output, const Tensors& inputs,
                         const c10d::ReduceScatterOptions& options);
  WorkPtr reduce_each(const DeviceScope& scope, Call call, const Tensors& tensors,
                      const c10d::ReduceOp& op);
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options);
  collectives::GpuRoute gpu_route(const DeviceScope& scope, const collectives::CallSignature& call,
                                  collectives::Collective collective, const at::Tensor& tensor,
                                  std::chrono::milliseconds timeout);
  GpuGroup& gpus(const c10::Device& gpu, std::chrono::milliseconds timeout);
  std::unique_ptr<GpuGroup> make_gpu_group(const c10::Device& gpu,
                                           const transport::WaitLimit& limit);
  void count_ranks(collectives::Communicator& group, const transport::WaitLimit& limit);
  void run(const Task& task);
  void run_all();
  /// Waits for what is queued so long, then ends it with an error, and leaves.
  void stop(std::chrono::milliseconds patience);
  [[nodiscard]] std::chrono::milliseconds leave_limit() const;
  PointToPoint& pairs();
  c10::intrusive_ptr<PendingWork> pair_work(const DeviceScope& scope, c10d::OpType type,
                                            Tensors& tensors, int tag, const char* operation);

  // Result of the last split(), and its arguments: c10d asks once for each type of device, and one
  // end of the new group serves all of them. Of the thread that makes groups.
  c10::intrusive_ptr<c10d::Store> split_store_;
  c10::weak_intrusive_ptr<c10d::Backend> split_group_{c10::intrusive_ptr<c10d::Backend>()};

  c10::intrusive_ptr<c10d::Store> store_;
  session::C10dStore keys_;
  SmddpOptions options_;
  CallbackThreads callbacks_;
  StagingStreams streams_;
  std::unique_ptr<collectives::Communicator> communicator_;
  int process_;
  std::vector<int> names_;  // of the group's ranks in the job
  uint64_t counts_ = 0;     // of count_ranks(); of the thread that runs a collective
  std::atomic<std::chrono::milliseconds> timeout_;  // for calls that give none

  std::mutex mutex_;                                // guards what follows
  std::unique_ptr<record::TrafficRecord> traffic_;  // if the job wants any
  std::condition_variable changed_;
  std::deque<Task> queue_;
  uint64_t calls_ = 0;
  std::thread::id caller_;                         // of the first one
  std::unique_ptr<GpuGroup> gpus_;                 // from the first call with a GPU's tensors on
  std::unique_ptr<session::C10dStore> pair_keys_;  // from the first send or recv on
  std::unique_ptr<PointToPoint> pairs_;            // likewise
  std::optional<std::vector<WorkPtr>> coalesced_;  // between start and end
  bool busy_ = false;       // somebody runs a collective: the thread, or a caller
  bool computes_ = false;   // and its work has not ended
  std::thread::id runner_;  // who did so last
  bool stopping_ = false;
  bool failed_ = false;

  std::thread thread_;  // last: it starts with the members above in place
};

}  // namespace smp::smddp
