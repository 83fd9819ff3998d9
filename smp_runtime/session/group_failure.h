// SPDX-License-Identifier: Apache-2.0
// What c10d throws when a rank of a group is gone names a connection; here it gets to name the
// rank.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/session/waits/wait_watch.h"
#include "smp_runtime/transport/error_text.h"

namespace smp::session {

/// Whether Gloo carries the group's tensors on `device`: what one may ask of a group depends on it.
/// Throws c10::Error if the group has no backend for `device`.
inline bool is_gloo(c10d::ProcessGroup& group, c10::DeviceType device) {
  return group.getBackend(device)->getBackendName() == "gloo";
}

/// Leaves this rank's number in the job where the others of the group look for it should it be
/// lost. Each rank that makes a group does so.
void leave_job_rank(c10d::ProcessGroup& group, int job_rank);

/// Whether ranks with different numbers of batches can be helped by DistributedModel.join().
enum class Uneven { kMayJoin, kRefused };
[[nodiscard]] constexpr Uneven uneven(bool may_join) {
  return may_join ? Uneven::kMayJoin : Uneven::kRefused;
}

/// What to throw for a collective, `what`, over `group` that c10d gave up with `text`. Tells the
/// other ranks of the group, whose collective then fails, too, and names those that do not answer
/// within 3 s. The group is of no use any more.
HostError group_failure(c10d::ProcessGroup& group, std::string_view what, std::string_view text,
                        Uneven advice = Uneven::kMayJoin);

/// What `call` returns: a part of `what`, a collective over `group`. Throws group_failure() where
/// c10d reports a lost or silent rank; all other errors, such as those of user code, pass.
template <typename Call>
decltype(auto) naming_group(c10d::ProcessGroup& group, std::string_view what, Call&& call,
                            Uneven advice = Uneven::kMayJoin) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const c10::DistError& error) {
    throw group_failure(group, what, error.what_without_backtrace(), advice);
  } catch (const std::runtime_error& error) {  // Gloo's own
    throw group_failure(group, what, transport::error_text(error), advice);
  }
}

/// Tells the other ranks of the group that a collective has failed for this one.
void tell_failure(c10d::ProcessGroup& group);
/// Whether some rank has told so; also if the store is lost, with rank 0 or its launcher.
[[nodiscard]] bool has_failed(const c10d::ProcessGroup& group);
/// Numbers in the job of those ranks that have not told so within 3 s. Each does, once: a group
/// does not outlive its first failure. None if the store is lost.
[[nodiscard]] std::vector<int> silent_ranks(c10d::ProcessGroup& group);

/// Waits for `work`, and calls `look`, which may throw, each `interval` meanwhile: over Gloo a rank
/// may wait for one that has failed and not for the one that is lost.
template <typename Look>
void wait_looking(c10d::Work& work, std::chrono::milliseconds interval, const Look& look) {
  while (true) {
    try {
      work.wait(interval);
      return;
    } catch (const std::exception&) {
      if (work.isCompleted()) throw;
    }
    look();
  }
}

/// Waits for `work`, a part of `what` with tensors on `device`, as naming_group() does. Over Gloo
/// it looks each second whether another rank has failed, and whether `watch`, if there is one, has
/// seen that ranks wait for each other in different calls, which throws CallMismatch.
void await(c10d::ProcessGroup& group, std::string_view what, c10d::Work& work,
           c10::DeviceType device, Uneven advice, session::WaitWatch* watch);

}  // namespace smp::session
