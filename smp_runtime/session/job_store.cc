// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/job_store.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "smp_runtime/transport/fabric/network_address.h"

namespace smp::session {
namespace {

c10::intrusive_ptr<c10d::TCPStore> connect(const Address& address, int rank, bool serves,
                                           std::chrono::milliseconds timeout) {
  const auto& [host, port] = address;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const std::exception& error) {
    throw HostError(
        "rank {} cannot {} the job's store at {}:{}: {}; check MASTER_ADDR and MASTER_PORT", rank,
        serves ? "serve" : "reach", host, port, transport::first_line(error.what()));
  }
}

/// Two jobs that were given one port would mix: rank 0 of the second cannot serve its store, and
/// its other ranks reach that of the first.
void check_job(c10d::Store& store, int rank, const std::string& job, const Address& address) {
  if (rank == 0) {
    store.set("job", job);
    return;
  }
  const std::string theirs = store.get_to_str("job");
  if (theirs == job) return;
  throw HostError(
      "rank {} of job {} reached the store of job {} at {}:{}: two jobs use one port; set "
      "MASTER_PORT to a free one, or end the other job",
      rank, job, theirs, address.first, address.second);
}

}  // namespace

StorePtr open_store(const cluster::LaunchRanks& ranks, cluster::RendezvousRequest request,
                    const FindMpi& find_mpi, std::chrono::milliseconds timeout) {
  if (ranks.size == 1) return c10::make_intrusive<c10d::HashStore>();
  TellAddress tell;
  if (find_mpi && !cluster::is_told(request)) tell = find_mpi(ranks);
  request.have_mpi = static_cast<bool>(tell);
  const cluster::Rendezvous place = cluster::plan_rendezvous(ranks, request);
  const bool serves = ranks.rank == 0 && !place.foreign;
  Address address(place.host, place.port);
  if (request.have_mpi) {
    if (!serves) return connect(tell(std::nullopt), ranks.rank, false, timeout);
    if (address.first.empty()) address.first = transport::network_address("", "");
    auto store = connect(address, ranks.rank, true, timeout);
    tell(Address(address.first, store->getPort()));
    return store;
  }
  auto store = connect(address, ranks.rank, serves, timeout);
  if (place.foreign) return c10::make_intrusive<c10d::PrefixStore>(place.prefix, store);
  asking_store(ranks.rank, [&] {
    check_job(*store, ranks.rank, cluster::job_number(request.variables), address);
  });
  return store;
}

}  // namespace smp::session
