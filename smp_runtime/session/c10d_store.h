// SPDX-License-Identifier: Apache-2.0
// Stores of c10d: the one that all ranks of a job share, c10d's errors of it as ours, and a store
// as the runtime's KeyValueStore.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "smp_runtime/cluster/launch_ranks.h"
#include "smp_runtime/cluster/rendezvous.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/transport/error_text.h"
#include "smp_runtime/transport/key_value_store.h"

namespace smp::session {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// The same keys over a connection of its own: a TCPStore that waits for one thread keeps the
/// others waiting. Throws HostError where the store's server has ended: at once, or after 10 to 20
/// s where it ends just now. c10d's clone() would try again until the store's timeout.
[[nodiscard]] StorePtr own_connection(const StorePtr& store);

/// `store` as an AuthenticatedStore, which takes the place of the one under its prefixes, so that
/// keys are whole. Returns it as it is where it is one.
[[nodiscard]] StorePtr authenticated(const StorePtr& store, const JobSecret& secret);
/// The secret under which the values of `store` have codes, as long as it is there; null where they
/// have none.
[[nodiscard]] const JobSecret* secret_of(const c10d::Store& store);

class C10dStore : public transport::KeyValueStore {
 public:
  explicit C10dStore(StorePtr store);

  bool has(const std::string& key) override;
  std::optional<std::string> find(const std::string& key) override;
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, const transport::WaitLimit& limit) override;
  [[nodiscard]] const JobSecret* secret() const override { return secret_of(*store_); }

 private:
  StorePtr store_;
};

/// Host and port of the store, and the text of the job's secret.
using Invitation = std::tuple<std::string, int, std::string>;
/// Gives rank 0's invitation to all ranks, over MPI; the others call it with nothing.
using TellInvitation = std::function<Invitation(const std::optional<Invitation>&)>;
/// Finds the call that tells it, if these ranks are in a world of MPI. Asked only where nothing
/// else says where the store is.
using FindMpi = std::function<TellInvitation(const cluster::LaunchRanks&)>;

/// The job's store, and its server on the rank that serves it. The server ends, and frees its port,
/// with the last reference to it, whoever still holds the store: a group of c10d that garbage
/// keeps.
struct OpenedStore {
  StorePtr store;
  StorePtr server;
};

/// Opens the store where `request` and the environment say; collective. Rank 0 serves it, unless
/// torchrun's agent does: at the loopback where all ranks are on its host, else at the address of
/// this host's network. It is an AuthenticatedStore if there is a `secret`, which rank 0 draws
/// where there is none and it can tell it by MPI. `find_mpi` may be empty. Waits at most `timeout`
/// for rank 0. Throws HostError when it is not reached, its port is taken, or it is another job's.
OpenedStore open_store(const cluster::LaunchRanks& ranks, cluster::RendezvousRequest request,
                       std::optional<JobSecret> secret, const FindMpi& find_mpi,
                       std::chrono::milliseconds timeout);

/// `store`, which ranks have without us: authenticated() if there is a `secret`. Collective; throws
/// ConfigError on a rank that has none, or has one, other than rank 0.
StorePtr agreed_store(const StorePtr& store, int rank, const std::optional<JobSecret>& secret);

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
