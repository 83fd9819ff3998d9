// SPDX-License-Identifier: Apache-2.0
// Parts of a save or a load that all ranks end together: what failed on one of them fails on all,
// or the others would wait for it.
#pragma once

#include <functional>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/session/session.h"

namespace smp::checkpoint {

/// A checkpoint cannot be written or read, here or on another rank.
class CheckpointError : public HostError {
  using HostError::HostError;
};

/// Returns what `act` does; what it throws of files, their folder, or for want of threads or memory
/// becomes a CheckpointError.
template <typename Act>
auto with_files(const Act& act) {
  try {
    return act();
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    throw CheckpointError("{}", error.what());
  } catch (const std::system_error& error) {  // of the file system, or for want of a thread
    throw CheckpointError("{}", error.what());
  } catch (const std::bad_alloc&) {
    throw CheckpointError("there is no memory left on this host");
  }
}

/// The texts of all ranks by rank, of each its `text`; `what` begins errors. Collective.
using GatherTexts =
    std::function<std::vector<std::string>(const std::string& what, const std::string& text)>;
/// That of the thread that trains.
GatherTexts gather_by(session::Session& session);

/// All ranks of the job call it at the end of a part, with what failed here, or an empty text;
/// blocks until all have. Returns what each gave along as `payload`, by rank. Throws
/// CheckpointError that names the first rank that failed.
std::vector<std::string> end_together(const GatherTexts& gather, const std::string& what,
                                      const std::string& error, const std::string& payload = {});

/// Calls `act` and ends with all ranks. Throws what it threw, or CheckpointError for what failed on
/// another rank.
void together(session::Session& session, const std::string& what, const std::function<void()>& act);

/// Calls `act`, then `tell` with what failed in it, or an empty text. Throws what `act` threw, else
/// what `tell` did.
void run_collectively(const std::function<void()>& act,
                      const std::function<void(const std::string&)>& tell);

}  // namespace smp::checkpoint
