// SPDX-License-Identifier: Apache-2.0
// The host that runs mpirun over the others: keys, sshd, peers, ranks, status, in this order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "entrypoint/runners/job_runner.h"
#include "entrypoint/ssh/cluster_keys.h"
#include "entrypoint/ssh/peer.h"

namespace entrypoint {

class MpiMaster final : public Job {
 public:
  MpiMaster(const LaunchPlan& plan, JobSettings settings, ProcessRunner& runner);

  Outcome run() override;
  void collect_records() override;
  void announce(const JobStatus& status) override;

 private:
  PeerRequest peer(const std::string& host) const;
  std::optional<Outcome> wait_for_workers(std::optional<ChildId> sshd);
  /// Waits for a helper process until it ends; a stop ends the wait, too, if it `heeds_stop`.
  /// Nothing where it succeeded, else what it said, which is nothing of one that goes on.
  std::optional<std::string> failure_of(ChildId helper, Deadline deadline, bool heeds_stop);
  Outcome run_ranks(const Command& mpirun_command, std::optional<ChildId> sshd);
  std::vector<std::string> mpirun_environment() const;

  const LaunchPlan& plan_;
  JobSettings settings_;
  ProcessRunner& runner_;
  ClusterKeys keys_;
  std::vector<std::string> workers_;
  std::vector<std::string> ready_;    ///< workers that ssh reaches, and so can be told
  std::vector<std::string> waiting_;  ///< may still prepare themselves, or wait for a key
};

}  // namespace entrypoint
