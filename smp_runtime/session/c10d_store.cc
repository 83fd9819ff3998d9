// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/c10d_store.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/tcp.h"
#include "smp_runtime/transport/fabric/network.h"

namespace smp::session {
namespace {

constexpr std::chrono::seconds kLongestDial{10};

[[noreturn]] void throw_lost(const std::string& what, const std::string& reason) {
  throw HostError(
      "the job's store does not answer {}: {}; a TCPStore ends with the process that made it, "
      "which is rank 0 of the job unless a launcher did: see how that one ended",
      what, reason);
}

/// Returns the result of `call` on the store; throws HostError in place of c10d's error when the
/// store is lost.
template <typename Call>
auto answered(const std::string& key, const Call& call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    throw_lost(fmt::format("for \"{}\"", key), error.what_without_backtrace());
  }
}

/// Reads a store's prefix, which c10d keeps from its users.
struct Prefix : c10d::PrefixStore {
  static const std::string& of(const c10d::PrefixStore& store) { return store.*(&Prefix::prefix_); }
};

/// The server may end after the probe, so the connection has a limit of its own too.
c10::intrusive_ptr<c10d::Store> connect(const c10d::TCPStore& server) {
  const std::string place = fmt::format("at {} port {}", server.getHost(), server.getPort());
  c10d::TCPStoreOptions options;
  options.port = server.getPort();
  options.waitWorkers = false;
  options.timeout = kLongestDial;
  try {
    static_cast<void>(
        tcp::Connection::open(tcp::resolve(server.getHost(), server.getPort()), kLongestDial));
    return c10::make_intrusive<c10d::TCPStore>(server.getHost(), options);
  } catch (const HostError& error) {
    throw_lost(place, error.what());
  } catch (const c10::Error& error) {
    throw_lost(place, error.what_without_backtrace());
  }
}

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

c10::intrusive_ptr<c10d::Store> own_connection(const c10::intrusive_ptr<c10d::Store>& store) {
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    return c10::make_intrusive<c10d::PrefixStore>(Prefix::of(*prefixed),
                                                  own_connection(prefixed->getUnderlyingStore()));
  }
  if (const auto* server = dynamic_cast<const c10d::TCPStore*>(store.get())) {
    c10::intrusive_ptr<c10d::Store> own = connect(*server);
    own->setTimeout(server->getTimeout());
    return own;
  }
  return store->clone();
}

C10dStore::C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

bool C10dStore::has(const std::string& key) {
  return answered(key, [&] { return store_->check({key}); });
}

void C10dStore::set(const std::string& key, const std::string& value) {
  answered(key, [&] { store_->set(key, value); });
}

std::string C10dStore::get(const std::string& key, const transport::WaitLimit& limit) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(limit.deadline - Clock::now());
  try {
    store_->wait({key}, std::max(left, std::chrono::milliseconds(1)));
    return store_->get_to_str(key);
  } catch (const c10::Error& error) {
    throw HostError(
        "{}: waited {} ms for \"{}\" in the job's store: {}; did all ranks make the group?",
        limit.operation, limit.timeout.count(), key, error.what_without_backtrace());
  }
}

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
