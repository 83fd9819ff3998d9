// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/c10d_store.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/tcp.h"
#include "smp_runtime/session/authenticated_store.h"
#include "smp_runtime/transport/fabric/network.h"

namespace smp::session {
namespace {

constexpr std::chrono::seconds kLongestDial{10};
const std::string kLoopback = "127.0.0.1";
/// No value of ours.
const std::string kAbsent = "\x7f";

/// Host and port.
using Address = std::pair<std::string, int>;

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

/// `store` with what `change` makes of the one under its prefixes.
template <typename Change>
StorePtr over_root(const StorePtr& store, const Change& change) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
  if (prefixed == nullptr) return change(store);
  return c10::make_intrusive<c10d::PrefixStore>(Prefix::of(*prefixed),
                                                over_root(prefixed->getUnderlyingStore(), change));
}

/// The server may end after the probe, so the connection has a limit of its own too.
c10::intrusive_ptr<c10d::Store> connect(const c10d::TCPStore& server) {
  const std::string place = fmt::format("at {} port {}", server.getHost(), server.getPort());
  c10d::TCPStoreOptions options;
  options.port = server.getPort();
  options.waitWorkers = false;
  options.timeout = kLongestDial;
  try {
    const auto probe =
        tcp::Connection::open(tcp::resolve(server.getHost(), server.getPort()), kLongestDial);
    // In place of the name, which a thousand ranks would look up once more.
    return c10::make_intrusive<c10d::TCPStore>(probe.peer().text(), options);
  } catch (const HostError& error) {
    throw_lost(place, error.what());
  } catch (const c10::Error& error) {
    throw_lost(place, error.what_without_backtrace());
  }
}

StorePtr own_connection_of(const StorePtr& store) {
  if (const auto* codes = dynamic_cast<const AuthenticatedStore*>(store.get())) {
    return codes->over(own_connection(codes->inner()));
  }
  if (const auto* server = dynamic_cast<const c10d::TCPStore*>(store.get())) {
    StorePtr own = connect(*server);
    own->setTimeout(server->getTimeout());
    return own;
  }
  return store->clone();
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

/// Numeric address of rank 0's store: where it listens, and where its own host reaches it. Empty on
/// other hosts, which reach it at `host`. A host may have its own name at the loopback, as Debian's
/// do, where the others do not come by.
std::string address_here(const cluster::LaunchRanks& ranks, const std::string& host) {
  if (ranks.local_size == ranks.size || host == "localhost") return kLoopback;
  if (is_loopback(host)) return host;
  if (host.empty() && ranks.rank != 0) return "";
  const auto is_here = [](const tcp::Address& one) { return is_loopback(one.text()); };
  const bool here = ranks.rank == 0 || std::ranges::any_of(tcp::resolve(host, 0), is_here);
  return here ? transport::network_address("", host) : "";
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
    if (!serves) return c10::make_intrusive<c10d::TCPStore>(host, options);
    // By itself it would listen at all addresses.
    const tcp::Listener listener({host}, port);
    options.port = static_cast<std::uint16_t>(listener.port());
    options.masterListenFd = fcntl(listener.fds().front(), F_DUPFD_CLOEXEC, 0);
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

StorePtr own_connection(const StorePtr& store) { return over_root(store, own_connection_of); }

StorePtr authenticated(const StorePtr& store, const JobSecret& secret) {
  if (secret_of(*store) != nullptr) return store;
  return over_root(store, [&](const StorePtr& root) -> StorePtr {
    return c10::make_intrusive<AuthenticatedStore>(root, secret);
  });
}

const JobSecret* secret_of(const c10d::Store& store) {
  if (const auto* codes = dynamic_cast<const AuthenticatedStore*>(&store)) return &codes->secret();
  // c10d gives a prefix's store to those alone who may change it.
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(const_cast<c10d::Store*>(&store));
  return prefixed == nullptr ? nullptr : secret_of(*prefixed->getUnderlyingStore());
}

C10dStore::C10dStore(StorePtr store) : store_(std::move(store)) {}

bool C10dStore::has(const std::string& key) {
  return answered(key, [&] { return store_->check({key}); });
}

/// A store whose key is not there gives what was expected of it back, unless that is empty, and
/// sets nothing.
std::optional<std::string> C10dStore::find(const std::string& key) {
  return answered(key, [&]() -> std::optional<std::string> {
    try {
      std::string found = store_->compareSet(key, kAbsent, kAbsent);
      return found == kAbsent ? std::nullopt : std::optional(std::move(found));
    } catch (const c10::NotImplementedError&) {  // a store of the user's
      return store_->check({key}) ? std::optional(store_->get_to_str(key)) : std::nullopt;
    }
  });
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

StorePtr agreed_store(const StorePtr& store, int rank, const std::optional<JobSecret>& secret) {
  // Not authenticated: a stranger who changes it ends the job, and no more.
  const std::string key = "smp/has secret";
  const std::string mine = secret ? "yes" : "no";
  const std::string first = asking_store(rank, [&] {
    if (rank == 0) store->set(key, mine);
    return store->get_to_str(key);
  });
  if (first != mine) {
    throw ConfigError(
        "rank {} has {} {}, and rank 0 has {}; give all ranks of the job the same one", rank,
        secret ? "a" : "no", kSecretVariable, secret ? "none" : "one");
  }
  return secret ? authenticated(store, *secret) : store;
}

OpenedStore open_store(const cluster::LaunchRanks& ranks, cluster::RendezvousRequest request,
                       std::optional<JobSecret> secret, const FindMpi& find_mpi,
                       std::chrono::milliseconds timeout) {
  if (ranks.size == 1) return {c10::make_intrusive<c10d::HashStore>(), nullptr};
  TellInvitation tell;
  if (find_mpi && !cluster::is_told(request)) tell = find_mpi(ranks);
  request.have_mpi = static_cast<bool>(tell);
  const cluster::Rendezvous place = cluster::plan_rendezvous(ranks, request);
  const bool serves = ranks.rank == 0 && !place.foreign;
  Address address(place.host, place.port);
  if (!place.foreign) {
    const std::string here = address_here(ranks, place.host);
    if (!here.empty()) address.first = here;
  }
  const auto reach = [&] { return connect(address, ranks.rank, false, timeout); };
  c10::intrusive_ptr<c10d::TCPStore> server;
  if (serves) {
    server = connect(address, ranks.rank, true, timeout);
    address.second = server->getPort();
  }
  if (request.have_mpi) {
    if (serves) {
      if (!secret) secret = JobSecret::draw();
      tell(Invitation(address.first, address.second, secret->text()));
    } else {
      std::string text;
      std::tie(address.first, address.second, text) = tell(std::nullopt);
      secret = JobSecret::given({{std::string(kSecretVariable), text}});
    }
    return {authenticated(reach(), *secret), server};
  }
  StorePtr store = reach();
  if (place.foreign) {
    store = c10::make_intrusive<c10d::PrefixStore>(place.prefix, store);
  } else {
    asking_store(ranks.rank, [&] {
      check_job(*store, ranks.rank, cluster::job_number(request.variables), address);
    });
  }
  return {agreed_store(store, ranks.rank, secret), server};
}

}  // namespace smp::session
