// SPDX-License-Identifier: Apache-2.0
// Checkpoints of all ranks, which programs in C++ and Python scripts read of each other.
#pragma once

#include <filesystem>
#include <string>

#include "smp/model.h"
#include "smp/optimizer.h"
#include "smp/session.h"
#include <ATen/core/ivalue.h>

namespace smp {

/// Content of a checkpoint.
struct CheckpointContent {
  std::string tag;  ///< a file name that begins with no dot
  DistributedOptimizer* optimizer =
      nullptr;  ///< its state, too: of SGD, Adam, AdamW, RMSprop, Adagrad
  /// Of rank 0: numbers, texts, tensors, lists and dictionaries; the same on all ranks where hosts
  /// have folders of their own.
  c10::IValue user_content = {};
  int keep = 0;  ///< how many checkpoints stay in the folder, the newest ones; 0: all
  /// False: the state is copied, and a thread writes it while the job goes on. As many saves as
  /// SMP_SAVES_UNDER_WAY says (1) may be under way, another one waits.
  bool blocking = true;
};

/// Writes `folder/TAG_partial`, as the newest checkpoint of the folder, in the files that Python's
/// smp.save_checkpoint writes. It appears in one step: a save that fails or is killed leaves the
/// one before. Collective over the job. Throws ConfigError for a tag that is no file name, a
/// negative `keep`, or ranks that save different ones, and HostError, on all ranks, which names the
/// rank that failed and why; so does the next call for one that was not `blocking`.
void save_checkpoint(Session& session, const std::filesystem::path& folder,
                     const DistributedModel& model, const CheckpointContent& content);

/// Keeps the job's state in the memory of its hosts, each of which also keeps a copy of a
/// neighbour's part, for resume_from_checkpoint() of `folder` after a restart. Every
/// SMP_CHECKPOINT_MEMORY-th call does it, none without this variable: as a save that does not
/// block, and where one is under way the next call. It replaces the one before, and counts until
/// another checkpoint is the newest of `folder`. Of `content` the optimizer and the user content
/// count. Collective over the job.
/// Throws as save_checkpoint(), and ConfigError where SMP_MEMORY_FOLDER names no folder.
void checkpoint_in_memory(Session& session, const std::filesystem::path& folder,
                          const DistributedModel& model, const CheckpointContent& content);

/// Blocks until the checkpoints are there that were saved without blocking. Collective over the
/// job. Throws what one of them failed with. The end of the session waits, too, and logs it.
void wait_for_saves(Session& session);

/// True if rank 0 finds a checkpoint in the folder, or the hosts one in their memory; the same
/// answer on all ranks. Collective over the job.
[[nodiscard]] bool has_checkpoint(Session& session, const std::filesystem::path& folder);

/// Choice of the checkpoint that is loaded, and of its parts.
struct ResumeOptions {
  std::string tag;                            ///< empty: the newest
  DistributedOptimizer* optimizer = nullptr;  ///< null: its state is left
};

/// Loads what save_checkpoint() or Python's smp.save_checkpoint(partial=True) wrote, of a job of
/// any degrees but tensor parallelism: values by the names "unit.parameter". Collective over the
/// job. Returns the user content, none if there is none. Throws ConfigError for a checkpoint that
/// is absent, damaged, incomplete, of another model or of another optimizer, and on ranks that do
/// not find so HostError, which names the one that does.
c10::IValue resume_from_checkpoint(Session& session, const std::filesystem::path& folder,
                                   DistributedModel& model, const ResumeOptions& options = {});

}  // namespace smp
