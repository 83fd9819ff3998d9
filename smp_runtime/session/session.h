// SPDX-License-Identifier: Apache-2.0
// One process's part in a job: its ranks, the store, groups, barriers and objects.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "smp_runtime/cluster/launch_ranks.h"
#include "smp_runtime/cluster/runtime_options.h"
#include "smp_runtime/record/recorder.h"
#include "smp_runtime/session/c10d_store.h"
#include "smp_runtime/session/groups.h"
#include "smp_runtime/session/object_exchange.h"
#include "smp_runtime/session/store_barriers.h"
#include "smp_runtime/topology/group_layout.h"
#include "smp_runtime/topology/mesh.h"
#include "smp_runtime/topology/parallel_config.h"

namespace smp::session {

/// Arguments of a session.
struct SessionRequest {
  topology::ParallelConfig config;
  cluster::RuntimeOptions options;
  Variables variables;  ///< of the environment
  int number = 0;       ///< how many sessions this process had before
  StorePtr store;       ///< that of a c10d world that is there; else one is opened
  std::optional<std::pair<int, int>> world;  ///< rank and size in that world; else the launcher's
  FindMpi find_mpi;                          ///< may be empty
  std::function<std::string()> script_line;  ///< where the script is; on the watch's thread
};

/// Collective to make: joins the job, and checks that all ranks have the same settings, which fit
/// their number. From then on the log speaks as this rank; rank 0's begins with warnings of
/// settings that may not be meant. Waits at most `options.timeout`. Throws ConfigError and
/// HostError. Functions of it are called by one thread at a time, but for barriers().
class Session {
 public:
  explicit Session(SessionRequest request);

  [[nodiscard]] const topology::ParallelConfig& config() const { return config_; }
  [[nodiscard]] const cluster::RuntimeOptions& options() const { return options_; }
  [[nodiscard]] const cluster::LaunchRanks& ranks() const { return ranks_; }
  [[nodiscard]] const topology::Mesh& mesh() const { return *mesh_; }
  /// Texts by key, of this session alone.
  [[nodiscard]] const StorePtr& store() const { return store_; }
  /// The same keys over a second connection, for calls that do not wait: none of store() holds them
  /// up.
  [[nodiscard]] const StorePtr& side_store() const { return side_store_; }
  /// The same for c10d's world, whose keys are its own.
  [[nodiscard]] StorePtr world_store() const;
  [[nodiscard]] StoreBarriers& barriers() { return *barriers_; }
  [[nodiscard]] ObjectExchange& objects() { return *objects_; }
  /// `own` of rank 0, which it tells the others under `key`, once a session. Other ranks wait for
  /// it. Throws HostError where rank 0 or the store is lost.
  std::string told_by_first(const std::string& key, const std::string& own);
  /// Placement on hosts of some `ranks` of the job, this one among them. Waits for those that have
  /// not begun their session.
  [[nodiscard]] topology::GroupLayout layout_of(const std::vector<int>& ranks) const;
  /// Recorder of this rank's activities; null where the environment wants no file of it.
  [[nodiscard]] const std::shared_ptr<record::Recorder>& recorder() const { return recorder_; }

  /// Lets groups be made; before it groups() and objects() must not be used. Collective.
  void open_groups(GroupBackends backends, MakeGroup make);
  [[nodiscard]] Groups& groups() { return *groups_; }

  /// Sums `tensor`, or what `operation` says, in place over a group of groups(); `what` begins its
  /// errors, which name the absent ranks: WaitTimeout, and HostError where it failed before that
  /// time. On a GPU nobody waits here: NCCL's watchdog ends the process.
  void all_reduce(const std::string& what, at::Tensor& tensor, c10d::ProcessGroup& group,
                  c10d::ReduceOp::RedOpType operation);

  /// Leaves the job; the session is of no use then. `failed`: the process ends because of an error,
  /// and waits for nobody. `serves`: its rank 0 serves the store, and goes last: it waits for the
  /// others as long as any wait lasts. Throws HostError where the job ended before.
  void leave(bool failed, bool serves);
  /// True if some rank has left without having failed.
  [[nodiscard]] bool some_rank_ended_well() const;

 private:
  void complete_locality();
  void require_secret() const;
  void compare_settings();
  void open_recorder();
  void open_log();

  const topology::ParallelConfig config_;
  const cluster::RuntimeOptions options_;
  const int number_;
  cluster::LaunchRanks ranks_;
  StorePtr server_;  // null where others serve the store
  StorePtr root_;
  StorePtr store_;
  StorePtr side_store_;
  std::optional<topology::Mesh> mesh_;
  std::shared_ptr<record::Recorder> recorder_;
  std::unique_ptr<StoreBarriers> barriers_;
  std::unique_ptr<Groups> groups_;
  std::unique_ptr<ObjectExchange> objects_;
};

}  // namespace smp::session
