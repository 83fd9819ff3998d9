// SPDX-License-Identifier: Apache-2.0
// A host whose ranks another host's mpirun starts: key, sshd, then wait for the master's word.
#pragma once

#include <string>
#include <vector>

#include "entrypoint/launch/cluster_keys.h"
#include "entrypoint/launch/job.h"

namespace entrypoint::launch {

class MpiWorker final : public Job {
 public:
  MpiWorker(const LaunchPlan& plan, JobSettings settings, ProcessRunner& runner);

  /// Returns what the master said. Throws HostError when the master does not come or vanishes.
  Outcome run() override;

 private:
  bool take_master_key();
  Outcome follow_master(ChildId sshd, ChildId watch);
  static bool stop_ranks();

  const LaunchPlan& plan_;
  JobSettings settings_;
  ProcessRunner& runner_;
  ClusterKeys keys_;
};

}  // namespace entrypoint::launch
