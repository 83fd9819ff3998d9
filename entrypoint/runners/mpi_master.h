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

class MpiMaster final : public JobRunner {
 public:
  MpiMaster(const JobOutline& outline, JobSettings settings, ProcessRunner& processes);

  std::optional<Outcome> connect() override;
  Outcome run(const std::vector<std::string>& argv) override;
  std::vector<std::string> silent_hosts() override;
  void collect_records() override;
  void announce(const JobStatus& status) override;

 private:
  PeerRequest peer(const std::string& host) const;
  std::optional<Outcome> wait_for_workers();
  std::vector<std::string> mpirun_environment() const;
  /// The hosts besides this one on which ranks are started.
  std::vector<std::string> other_hosts() const;

  const JobOutline& outline_;
  const RunnerChoice& choice_;
  JobSettings settings_;
  ProcessRunner& processes_;
  ClusterKeys keys_;
  smp::JobSecret rank_secret_;  ///< the one that all hosts were given, else drawn here
  std::optional<ChildId> sshd_;
  std::vector<std::string> workers_;
  std::vector<std::string> ready_;    ///< workers that ssh reaches, and so can be told
  std::vector<std::string> waiting_;  ///< may still prepare themselves, or wait for a key
};

}  // namespace entrypoint
