// SPDX-License-Identifier: Apache-2.0
// Waits for a c10d group, and the errors that name the rank for which they were in vain: what c10d
// itself throws names a connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/session/deadlock/deadlock_detector.h"
#include "smp_runtime/transport/error_text.h"

namespace smp::session {

/// True if Gloo carries the group's tensors on `device`, since not every backend can do the same.
/// Throws c10::Error if the group has no backend for `device`.
inline bool is_gloo(c10d::ProcessGroup& group, c10::DeviceType device) {
  return group.getBackend(device)->getBackendName() == "gloo";
}

/// Leaves this rank's number in the job where the others of the group look for it should it be
/// lost. Each rank that makes a group does so.
void leave_job_rank(c10d::ProcessGroup& group, int job_rank);

/// Advice for a rank that may be missing because it has fewer batches: whether there is any, and
/// whether DistributedModel.join() helps.
enum class Uneven { kNever, kRefused, kMayJoin };
[[nodiscard]] constexpr Uneven uneven(bool may_join) {
  return may_join ? Uneven::kMayJoin : Uneven::kRefused;
}

/// "rank 1", or "one of ranks 1, 2": those of `ranks` but `self`.
std::string one_of_others(std::vector<int> ranks, int self);
/// "rank 2", or "ranks 0, 2, 4", of many the first three and the last; they are ascending.
std::string described(const std::vector<int>& ranks);

/// The error where `rank` has waited for `absent`, which may be described(), of a group of ranks.
WaitTimeout waited_in_vain(std::string_view what, int rank, std::chrono::milliseconds timeout,
                           std::string_view absent, std::string_view group,
                           std::string_view advice);
/// The error where `rank` has lost `others`, which may be described(); `text` is c10d's.
HostError lost_connection(std::string_view what, int rank, std::string_view others,
                          std::string_view text, std::string_view advice = {});

/// Throws what there is to say of a collective, `what`, over `group` that c10d gave up with `text`:
/// HostError, or WaitTimeout. Over Gloo it first tells the other ranks of the group, whose
/// collective then fails, too: those that do not answer within 3 s are named. The group is of no
/// use any more.
[[noreturn]] void fail_group(c10d::ProcessGroup& group, std::string_view what,
                             std::string_view text, Uneven advice);

/// Returns the result of `call`, a part of `what`, a collective over `group`. Calls fail_group()
/// where c10d reports a lost or silent rank; all other errors, such as those of user code, pass.
template <typename Call>
decltype(auto) translate_c10d_errors(c10d::ProcessGroup& group, std::string_view what, Call&& call,
                                     Uneven advice = Uneven::kMayJoin) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const c10::DistError& error) {
    fail_group(group, what, error.what_without_backtrace(), advice);
  } catch (const std::runtime_error& error) {  // Gloo's own
    fail_group(group, what, transport::error_text(error), advice);
  }
}

/// Around the wait for a collective, `what`, over `group`: `watch`, if there is one, sees it.
/// Without a turn the collective begins here, too.
[[nodiscard]] WaitingCall group_call(const c10d::ProcessGroup& group, std::string_view what,
                                     DeadlockDetector* watch,
                                     std::optional<std::int64_t> turn = {});
/// For one that is waited for later: its turn, for await(). None without a watch.
std::optional<std::int64_t> start_turn(const c10d::ProcessGroup& group, std::string_view what,
                                       DeadlockDetector* watch);

/// Waits for `work`, a part of `what` with tensors on `device`, as translate_c10d_errors() does.
/// Meanwhile it asks whether `watch`, if there is one, has seen that ranks wait for each other in
/// different calls, which throws CallMismatch, and, over Gloo, once a second whether another rank
/// has failed: Gloo notices the end of a neighbour only. With a turn, other ranks are told of the
/// wait. NCCL's work is on the stream alone: nobody waits for it here.
void await(c10d::ProcessGroup& group, std::string_view what, c10d::Work& work,
           c10::DeviceType device, Uneven advice, DeadlockDetector* watch,
           std::optional<std::int64_t> turn = {});

}  // namespace smp::session
