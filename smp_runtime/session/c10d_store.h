// SPDX-License-Identifier: Apache-2.0
// Stores of c10d: the one that all ranks of a job share, c10d's errors of it as ours, and a store
// as the runtime's KeyValueStore.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "smp_runtime/cluster/launch_ranks.h"
#include "smp_runtime/cluster/rendezvous.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/error_text.h"
#include "smp_runtime/transport/key_value_store.h"

namespace smp::session {

/// The same keys over a connection of its own: a TCPStore that waits for one thread keeps the
/// others waiting. Throws HostError where the store's server has ended: at once, or after 10 to 20
/// s where it ends just now. c10d's clone() would try again until the store's timeout.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> own_connection(
    const c10::intrusive_ptr<c10d::Store>& store);

class C10dStore : public transport::KeyValueStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store);

  bool has(const std::string& key) override;
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, const transport::WaitLimit& limit) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// Host and port.
using Address = std::pair<std::string, int>;
/// Gives rank 0's address to all ranks, over MPI; the others call it with nothing.
using TellAddress = std::function<Address(const std::optional<Address>&)>;
/// Finds the call that tells an address, if these ranks are in a world of MPI. Asked only where
/// nothing else says it.
using FindMpi = std::function<TellAddress(const cluster::LaunchRanks&)>;

/// Opens the store where `request` and the environment say; collective. Rank 0 serves it, unless
/// torchrun's agent does. `find_mpi` may be empty. Waits at most `timeout` for rank 0.
/// Throws HostError when it is not reached, its port is taken, or it is another job's.
StorePtr open_store(const cluster::LaunchRanks& ranks, cluster::RendezvousRequest request,
                    const FindMpi& find_mpi, std::chrono::milliseconds timeout);

/// Returns the result of `call`; throws HostError in place of c10d's error when the store of `rank`
/// is lost.
template <typename Call>
decltype(auto) asking_store(int rank, Call&& call) {
  try {
    return call();
  } catch (const c10::DistError& error) {
    throw HostError("rank {} lost the job's store, which rank 0 or its launcher serves: {}", rank,
                    transport::first_line(error.what_without_backtrace()));
  }
}

}  // namespace smp::session
