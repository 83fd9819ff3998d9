// SPDX-License-Identifier: Apache-2.0
// What c10d throws when a rank of a group is gone names a connection; here it gets to name the
// group.
#pragma once

#include <stdexcept>
#include <string_view>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/nccl_advice.h"

namespace smp::collectives {

/// What `call` returns: a part of `what`, a collective over `group`. Throws HostError where c10d
/// reports a lost or silent rank; all other errors, such as those of user code, pass.
template <typename Call>
decltype(auto) naming_group(const c10d::ProcessGroup& group, std::string_view what, Call&& call) {
  const auto failed = [&](std::string_view text) {
    return HostError(
        "{} over {} of the job failed: one of them has ended or does not answer, and if it said "
        "why, that is the cause; if it had fewer batches, drop the last ones of the others "
        "(drop_last=True) or train inside model.join() ({}){}",
        what, group.getGroupDesc(), text, transport::nccl_advice(text));
  };
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const c10::DistError& error) {
    throw failed(error.what_without_backtrace());
  } catch (const std::runtime_error& error) {  // Gloo's own
    throw failed(error.what());
  }
}

}  // namespace smp::collectives
