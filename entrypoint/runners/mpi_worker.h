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

class MpiWorker final : public JobRunner {
 public:
  MpiWorker(const JobOutline& outline, JobSettings settings, ProcessRunner& processes);

  /// Throws HostError when the master does not come.
  std::optional<Outcome> connect() override;
  /// Waits for the master's word, and returns it. Throws HostError when the master vanishes.
  Outcome run(const std::vector<std::string>& argv) override;
  /// On a host that failed before connect() waits for the master, up to the job's worker timeout,
  /// to tell it. After connect() the master knows.
  void announce(const JobStatus& status) override;

 private:
  [[nodiscard]] ExchangeRequest exchange() const;
  std::optional<Outcome> take_master_key();
  static bool stop_ranks();
  void let_sessions_end();

  const JobOutline& outline_;
  const RunnerChoice& choice_;
  JobSettings settings_;
  ProcessRunner& processes_;
  ClusterKeys keys_;
  ChildId sshd_ = 0;
  ChildId watch_ = 0;  ///< of the master
  bool connects_ = false;
};

}  // namespace entrypoint
