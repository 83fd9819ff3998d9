// SPDX-License-Identifier: Apache-2.0
// State behind a smp::Session.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "smp/session.h"

#include "smp_runtime/checkpoint/session/background_saves.h"
#include "smp_runtime/checkpoint/session/memory_checkpoints.h"
#include "smp_runtime/metrics/step_reports.h"
#include "smp_runtime/session/session.h"

namespace smp {

/// Joins the job when it is made, leaves it when it ends. Models hold it, so that it ends last.
class Session::Core {
 public:
  explicit Core(std::string_view mp_parameters);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  [[nodiscard]] session::Session& session() { return session_; }
  [[nodiscard]] const topology::ParallelConfig& config() const { return session_.config(); }
  [[nodiscard]] int index(topology::Group group) const {
    return session_.mesh().rank_in(group, session_.ranks().rank);
  }
  [[nodiscard]] int count(topology::Group group) const { return session_.mesh().size(group); }
  [[nodiscard]] bool replicates() const { return config().ddp; }
  [[nodiscard]] metrics::StepReports& reports() { return *reports_; }
  /// Saves that are written while the job goes on.
  [[nodiscard]] checkpoint::BackgroundSaves& saves() { return saves_; }
  /// What the hosts keep in memory of the checkpoints of `folder`; null without
  /// SMP_CHECKPOINT_MEMORY. Collective the first time.
  checkpoint::MemoryCheckpoints* memory_of(const std::filesystem::path& folder);
  /// The number of a model that is made now; they are made in one order on all ranks.
  int count_model() { return models_++; }

 private:
  int models_ = 0;
  session::Session session_;
  std::optional<metrics::StepReports> reports_;
  std::map<std::filesystem::path, checkpoint::MemoryCheckpoints> memory_;  ///< by their folder
  checkpoint::BackgroundSaves saves_;                                      ///< which uses them
};

}  // namespace smp
