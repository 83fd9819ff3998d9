// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/shard_exchange.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/view_as_real.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/fnv1a.h"
#include "smp_runtime/record/recorder.h"
#include "smp_runtime/session/group_failure.h"
#include "smp_runtime/torch_compat/torch_compat.h"

namespace smp::sharding {
namespace {

constexpr std::int64_t kHeaderNumbers = 5;  // sequence, kind, first unit, units, mark of them
constexpr std::int64_t kReplicaChunk = 16 * 1024 * 1024;  // elements
constexpr std::string_view kShards = "an exchange of shards";
constexpr std::string_view kReplicas = "the sum of gradients over replicas of the model";
// DistributedModel.join() is refused where state is sharded or 16-bit.
constexpr auto kUneven = session::Uneven::kRefused;

/// Gloo knows no bfloat16, and moving needs no type.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view(at::kByte); }

std::int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

/// Differs, but by chance, for other units or another order.
std::int64_t checksum_of(std::span<const int> units) {
  const auto* bytes = reinterpret_cast<const char*>(units.data());
  return static_cast<std::int64_t>(fnv1a({bytes, units.size_bytes()}));
}

c10::intrusive_ptr<c10d::Work> gather_bytes(c10d::ProcessGroup& group, const at::Tensor& full,
                                            const at::Tensor& shard) {
  at::Tensor output = as_bytes(full);
  at::Tensor input = as_bytes(shard);
  return torch_compat::all_gather_single(group, output, input);
}

}  // namespace

ShardExchange::ShardExchange(ExchangeOptions options)
    : options_(std::move(options)),
      label_(fmt::format("shards/{}", options_.shards ? options_.shards->getGroupName() : "")) {
  SMP_CHECK(!options_.across_hosts == !options_.within_host,
            "a gather in steps needs both of its groups");
}

void ShardExchange::record_sent(std::int64_t bytes) const {
  if (!options_.recorder) return;
  options_.recorder->sent(options_.watch->members(options_.shards->getGroupName()), bytes);
}

int ShardExchange::degree() const { return options_.shards ? options_.shards->getSize() : 1; }
int ShardExchange::replicas() const { return options_.replicas ? options_.replicas->getSize() : 1; }

template <typename Act>
decltype(auto) ShardExchange::named(const Pending& pending, c10d::ProcessGroup& group,
                                    Act&& act) const {
  try {
    return session::translate_c10d_errors(group, kShards, std::forward<Act>(act), kUneven);
  } catch (const session::WaitTimeout& error) {
    throw session::WaitTimeout("{}: {}", describe(pending), error.what());
  } catch (const HostError& error) {
    throw HostError("{}: {}", describe(pending), error.what());
  }
}

void ShardExchange::await(const Pending& pending, c10d::ProcessGroup& group, c10d::Work& work,
                          c10::DeviceType device) const {
  named(pending, group,
        [&] { session::await(group, kShards, work, device, kUneven, options_.watch.get()); });
}

void ShardExchange::await_headers(const Pending& pending) const {
  {
    std::optional<session::WaitingCall> waiting;
    // A finished exchange needs no text that describes it.
    if (options_.watch && !pending.header_work_->isCompleted()) {
      waiting.emplace(options_.watch.get(), describe(pending), label_,
                      options_.watch->members(options_.shards->getGroupName()), pending.turn_);
    }
    await(pending, *options_.control, *pending.header_work_, at::kCPU);
  }
  check_headers(pending);
}

ShardExchange::Pending ShardExchange::announce(std::span<const int> units, ExchangeKind kind) {
  SMP_CHECK(options_.shards, "an exchange in a shard group of one");
  Pending pending;
  pending.units_.assign(units.begin(), units.end());
  pending.kind_ = kind;
  if (!options_.control) return pending;
  if (options_.watch) pending.turn_ = options_.watch->start(label_);
  pending.headers_sent_ = at::empty({degree() * kHeaderNumbers}, at::kLong);
  ++sequence_;
  auto* header = pending.headers_sent_.data_ptr<std::int64_t>();
  for (int rank = 0; rank < degree(); ++rank, header += kHeaderNumbers) {
    header[0] = sequence_;
    header[1] = static_cast<std::int64_t>(kind);
    header[2] = units.front();
    header[3] = static_cast<std::int64_t>(units.size());
    header[4] = checksum_of(units);
  }
  pending.headers_ = at::empty({degree() * kHeaderNumbers}, at::kLong);
  pending.header_work_ = named(pending, *options_.control, [&] {
    if (session::is_gloo(*options_.control, at::kCPU)) {
      // Straight to everybody: in a ring each header would queue behind what hosts send meanwhile,
      // once a step of the ring.
      return torch_compat::all_to_all_single(*options_.control, pending.headers_,
                                             pending.headers_sent_);
    }
    at::Tensor own = pending.headers_sent_.narrow(0, 0, kHeaderNumbers);
    return torch_compat::all_gather_single(*options_.control, pending.headers_, own);
  });
  return pending;
}

ShardExchange::Pending ShardExchange::start_gather(int unit, const at::Tensor& full,
                                                   const at::Tensor& shard) {
  Pending pending = announce(std::span(&unit, 1), ExchangeKind::kGather);
  pending.output_ = full;
  pending.input_ = shard;
  traffic_.gathered_bytes += bytes_of(shard) * (degree() - 1);
  record_sent(bytes_of(shard));
  if (!options_.across_hosts) {
    // Gloo is not to be relied on for a gather into memory that it also reads.
    const bool apart =
        !shard.is_alias_of(full) || !session::is_gloo(*options_.shards, full.device().type());
    if (!apart) pending.input_ = shard.clone();
    pending.work_ = named(pending, *options_.shards,
                          [&] { return gather_bytes(*options_.shards, full, pending.input_); });
    return pending;
  }
  pending.staged_ = at::empty({options_.across_hosts->getSize() * shard.numel()}, shard.options());
  pending.work_ = named(pending, *options_.across_hosts, [&] {
    return gather_bytes(*options_.across_hosts, pending.staged_, shard);
  });
  return pending;
}

ShardExchange::Pending ShardExchange::start_reduce(std::span<const int> units,
                                                   const at::Tensor& contributions,
                                                   at::ScalarType sum_type) {
  Pending pending = announce(units, ExchangeKind::kReduce);
  pending.input_ = contributions;
  pending.sum_type_ = sum_type;
  traffic_.reduced_bytes += bytes_of(contributions) / degree() * (degree() - 1);
  record_sent(bytes_of(contributions) / degree());
  const bool wide = contributions.scalar_type() == sum_type && contributions.element_size() >= 4 &&
                    !contributions.is_complex();
  if (wide && !session::is_gloo(*options_.shards, contributions.device().type())) {
    pending.output_ = at::empty({contributions.size(1)}, contributions.options());
    pending.work_ = named(pending, *options_.shards, [&] {
      return torch_compat::reduce_scatter_single(*options_.shards, pending.output_, pending.input_);
    });
    return pending;
  }
  pending.output_ = at::empty_like(contributions);
  at::Tensor output = as_bytes(pending.output_);
  at::Tensor input = as_bytes(contributions);
  pending.work_ = named(pending, *options_.shards, [&] {
    return torch_compat::all_to_all_single(*options_.shards, output, input);
  });
  return pending;
}

at::Tensor ShardExchange::wait(Pending& pending) {
  const record::Waited waited(options_.recorder.get(),
                              pending.kind_ == ExchangeKind::kGather ? record::Activity::kGather
                                                                     : record::Activity::kReduce,
                              [&] { return describe(pending); });
  if (pending.header_work_) await_headers(pending);
  const c10::DeviceType device = pending.input_.device().type();
  await(pending,
        options_.across_hosts && pending.staged_.defined() ? *options_.across_hosts
                                                           : *options_.shards,
        *pending.work_, device);
  if (pending.staged_.defined()) {
    // Rank (host h, local l) holds T_l = [s of (0,l), s of (1,l), ...]; wanted is host-major.
    // One gather a host writes straight into that host's slice, so nothing is reordered.
    const std::int64_t hosts = options_.across_hosts->getSize();
    const std::int64_t shard = pending.input_.numel();
    const std::int64_t slice = shard * options_.within_host->getSize();
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (std::int64_t host = 0; host < hosts; ++host) {
      works.push_back(named(pending, *options_.within_host, [&] {
        return gather_bytes(*options_.within_host, pending.output_.narrow(0, host * slice, slice),
                            pending.staged_.narrow(0, host * shard, shard));
      }));
    }
    for (const auto& work : works) await(pending, *options_.within_host, *work, device);
  }
  at::Tensor output = std::move(pending.output_);
  if (pending.kind_ == ExchangeKind::kReduce && output.dim() == 2) {
    output = at::sum(output, {0}, /*keepdim=*/false, pending.sum_type_);
  }
  pending = Pending();
  return output;
}

void ShardExchange::check_headers(const Pending& pending) const {
  const auto* mine = pending.headers_sent_.data_ptr<std::int64_t>();
  const auto* all = pending.headers_.data_ptr<std::int64_t>();
  for (int rank = 0; rank < degree(); ++rank) {
    const std::int64_t* theirs = all + rank * kHeaderNumbers;
    if (std::equal(theirs, theirs + kHeaderNumbers, mine)) continue;
    const int first = static_cast<int>(theirs[2]);
    throw UserCodeError(
        "ranks of one shard group run different modules: here it is the turn of {}, on rank {} of "
        "the group of {}; with sharded data parallelism every rank runs the same modules in the "
        "same order, as control flow that depends on a rank's own data does not",
        describe(pending), rank,
        describe(static_cast<ExchangeKind>(theirs[1]), std::span(&first, 1),
                 static_cast<std::size_t>(theirs[3])));
  }
}

std::string ShardExchange::describe(const Pending& pending) const {
  return describe(pending.kind_, pending.units_, pending.units_.size());
}

/// Describes an exchange: by all units where they are known, else by the first and their number.
std::string ShardExchange::describe(ExchangeKind kind, std::span<const int> units,
                                    std::size_t count) const {
  constexpr std::size_t kNames = 8;
  std::vector<std::string> names;
  for (const int unit : units.first(std::min(units.size(), kNames))) {
    names.push_back(options_.unit_name(unit));
  }
  const std::string more =
      count > names.size() ? fmt::format(" and of {} more", count - names.size()) : "";
  return fmt::format("{} {}{}",
                     kind == ExchangeKind::kGather ? "gathering" : "reducing the gradients of",
                     fmt::join(names, ", "), more);
}

ShardExchange::Sum ShardExchange::start_sum(const at::Tensor& tensor) {
  Sum sum;
  if (!options_.replicas) return sum;
  sum.device_ = tensor.device().type();
  const std::int64_t size = replicas();
  sum.turn_ = session::start_turn(*options_.replicas, kReplicas, options_.watch.get());
  traffic_.replica_bytes += 2 * bytes_of(tensor) / size * (size - 1);
  const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor).view({-1}) : tensor;
  // In pieces, since gloo makes a scratch copy of what it is given.
  for (std::int64_t from = 0; from < real.numel(); from += kReplicaChunk) {
    std::vector<at::Tensor> piece{
        real.narrow(0, from, std::min(kReplicaChunk, real.numel() - from))};
    sum.works_.push_back(session::translate_c10d_errors(
        *options_.replicas, kReplicas, [&] { return options_.replicas->allreduce(piece); },
        kUneven));
  }
  return sum;
}

void ShardExchange::wait(Sum& sum) {
  const record::Waited waited(options_.recorder.get(), record::Activity::kReduce,
                              [] { return std::string("summing over replicas"); });
  for (const auto& work : sum.works_) {
    session::await(*options_.replicas, kReplicas, *work, sum.device_, kUneven, options_.watch.get(),
                   sum.turn_);
  }
  sum = Sum();
}

}  // namespace smp::sharding
