// SPDX-License-Identifier: Apache-2.0
// A host whose ranks another host's mpirun starts: key, sshd, then wait for the master's word.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "entrypoint/runners/job_runner.h"
#include "entrypoint/ssh/cluster_keys.h"
#include "entrypoint/ssh/key_exchange.h"

namespace entrypoint {

class MpiWorker final : public Job {
 public:
  MpiWorker(const LaunchPlan& plan, JobSettings settings, ProcessRunner& runner);

  /// Returns what the master said. Throws HostError when the master does not come or vanishes.
  Outcome run() override;
  /// Of a host that failed before run(): waits for the master, up to the job's worker timeout, to
  /// tell it. After run() the master knows.
  void announce(const JobStatus& status) override;

 private:
  [[nodiscard]] ExchangeRequest exchange() const;
  std::optional<Outcome> take_master_key();
  Outcome follow_master(ChildId sshd, ChildId watch);
  static bool stop_ranks();

  const LaunchPlan& plan_;
  JobSettings settings_;
  ProcessRunner& runner_;
  ClusterKeys keys_;
  bool ran_ = false;
};

}  // namespace entrypoint
