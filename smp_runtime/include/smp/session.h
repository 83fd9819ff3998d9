// SPDX-License-Identifier: Apache-2.0
// One process's part in a job: its settings, its ranks, the other ranks.
#pragma once

#include <memory>
#include <string_view>

namespace smp {

/// Made on every rank of the job, before anything else; its end leaves the job. One at a time in a
/// process, by the thread that goes on to train. The launcher may be `train`, mpirun, torchrun,
/// Slurm or none; what they say is read from the environment.
class Session {
 public:
  /// With the job's settings (SM_HP_MP_PARAMETERS). Collective: blocks until all ranks have come,
  /// at most SMP_TIMEOUT_SECONDS. Throws ConfigError for settings that are unknown, contradict each
  /// other, differ between ranks, do not fit their number, or that C++ programs do not have yet;
  /// HostError where the other ranks are not reached.
  static Session from_environment();
  /// The same with settings of the program's, as in mp_parameters: `{"microbatches": 4}`. Those of
  /// the job have precedence.
  static Session from_settings(std::string_view mp_parameters);

  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  /// Leaves. Rank 0 serves the others' store, and waits for them for at most the same time; not
  /// where an exception ends the process, for then the job ends anyway.
  ~Session();

  [[nodiscard]] int rank() const;  ///< of the job
  [[nodiscard]] int size() const;
  [[nodiscard]] int local_rank() const;  ///< among those of this host
  /// The partition of the model that this rank has, and how many there are.
  [[nodiscard]] int pp_rank() const;
  [[nodiscard]] int pp_size() const;
  /// Which replica of the model this rank belongs to, and how many there are: each trains on
  /// batches of its own.
  [[nodiscard]] int dp_rank() const;
  [[nodiscard]] int dp_size() const;
  /// Into how many parts a step cuts its batch.
  [[nodiscard]] int microbatches() const;

  /// Returns when all ranks of the job have called it. Throws HostError, which names the ranks that
  /// did not come in time.
  void barrier();

  class Core;
  /// Of the library's own.
  [[nodiscard]] const std::shared_ptr<Core>& core() const { return core_; }

 private:
  explicit Session(std::shared_ptr<Core> core);

  std::shared_ptr<Core> core_;
};

}  // namespace smp
