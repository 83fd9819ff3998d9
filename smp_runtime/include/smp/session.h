// SPDX-License-Identifier: Apache-2.0
// One process's part in a job: its settings, its ranks, the other ranks.
#pragma once

#include <cstdint>
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

  /// A session that was moved from may only be assigned to or destroyed.
  Session(Session&&) noexcept;
  /// Likewise; the session that was here is left.
  Session& operator=(Session&&) noexcept;
  /// Leaves the job as soon as its models have ended, too. Rank 0 serves the others' store, and
  /// waits for them for at most SMP_TIMEOUT_SECONDS; not where an exception ends the process, for
  /// then the job ends anyway.
  ~Session();

  [[nodiscard]] int rank() const;        ///< of the job, from 0
  [[nodiscard]] int size() const;        ///< how many ranks the job has
  [[nodiscard]] int local_rank() const;  ///< among those of this host
  /// The partition of the model that this rank has.
  [[nodiscard]] int pp_rank() const;
  [[nodiscard]] int pp_size() const;  ///< how many partitions there are
  /// Which replica of the model this rank belongs to: each trains on batches of its own.
  [[nodiscard]] int dp_rank() const;
  [[nodiscard]] int dp_size() const;  ///< how many replicas there are
  /// Into how many parts a step cuts its batch.
  [[nodiscard]] int microbatches() const;

  /// Tells the live line how many training steps the program makes: it shows `step 12 of 400` and
  /// the time left. Any rank may call it, at any time, and again. Throws ConfigError below 1.
  void progress(std::int64_t steps);

  /// Returns when all ranks of the job have called it. Throws HostError, which names the ranks that
  /// did not come in time.
  void barrier();

  /// @cond OF_THE_LIBRARY
  class Core;
  [[nodiscard]] const std::shared_ptr<Core>& core() const { return core_; }
  /// @endcond

 private:
  explicit Session(std::shared_ptr<Core> core);

  std::shared_ptr<Core> core_;
};

}  // namespace smp
