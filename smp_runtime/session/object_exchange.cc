// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/object_exchange.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "smp_runtime/core/text.h"
#include "smp_runtime/session/group_failure.h"

namespace smp::session {
namespace {

using topology::Group;

/// One rank's part of a gather, which comes before it.
struct Announcement {
  std::int64_t size_bytes;
  Mac bytes;    ///< code of the part's bytes
  Mac message;  ///< of what is above, the call and the sender
};

at::Tensor buffer_of(std::int64_t size) { return at::empty({size}, at::kByte); }

at::Tensor tensor_of(std::string_view bytes) {
  at::Tensor tensor = buffer_of(static_cast<std::int64_t>(bytes.size()));
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string bytes_of(const at::Tensor& tensor, std::int64_t size) {
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::size_t>(size)};
}

}  // namespace

void ObjectExchange::send(const std::string& what, Group kind, std::string bytes, int destination) {
  if (destination == barriers_.rank()) {
    to_self_[kind].push_back(std::move(bytes));
  } else {
    send(what, kind, bytes, std::vector{destination});
  }
}

void ObjectExchange::broadcast(const std::string& what, Group kind, const std::string& bytes) {
  std::vector<int> others = groups_.ranks(kind);
  std::erase(others, barriers_.rank());
  send(what, kind, bytes, others);
}

void ObjectExchange::send(const std::string& what, Group kind, const std::string& bytes,
                          const std::vector<int>& receivers) {
  // Receivers come to the store first, so that an absent one is named before any byte moves.
  const std::string label(topology::name(kind));
  // The store's code of this note is over its key, which has the sender, the receiver and the call.
  const std::string note = fmt::format("{} {}", bytes.size(), mac_text(code_of({field(bytes)})));
  std::vector<std::string> calls;
  for (const int rank : receivers) calls.push_back(barriers_.announce(label, rank, note));
  for (std::size_t i = 0; i < receivers.size(); ++i) {
    barriers_.await_receiver(what, calls[i], receivers[i]);
  }
  const GroupPtr channel = groups_.cpu_group(Group::kWorld);
  std::vector<at::Tensor> tensors{tensor_of(bytes)};
  try {
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (const int rank : receivers) works.push_back(channel->send(tensors, rank, 0));
    for (const auto& work : works) work->wait();
  } catch (const std::exception& error) {
    throw lost_connection(what, barriers_.rank(), one_of_others(receivers, barriers_.rank()),
                          transport::error_text(error));
  }
}

std::optional<std::string> ObjectExchange::take_own(Group kind) {
  std::deque<std::string>& kept = to_self_[kind];
  if (kept.empty()) return std::nullopt;
  std::string bytes = std::move(kept.front());
  kept.pop_front();
  return bytes;
}

std::string ObjectExchange::receive(const std::string& what, Group kind, int source) {
  const std::string note = barriers_.await_sender(what, std::string(topology::name(kind)), source);
  const std::size_t space = note.find(' ');
  const auto size = parse_number<std::int64_t>(note.substr(0, space));
  const auto code = parse_mac(note.substr(std::min(space, note.size() - 1) + 1));
  SMP_CHECK(size && *size >= 0 && code, "rank {} announced \"{}\"", source, note);
  std::vector<at::Tensor> tensors{buffer_of(*size)};
  try {
    groups_.cpu_group(Group::kWorld)->recv(tensors, source, 0)->wait();
  } catch (const std::exception& error) {
    throw lost_connection(what, barriers_.rank(), described({source}),
                          transport::error_text(error));
  }
  std::string bytes = bytes_of(tensors[0], *size);
  check(what, *code, {field(bytes)}, source);
  return bytes;
}

Mac ObjectExchange::code_of(std::initializer_list<MacKey::Field> fields) const {
  return codes_ ? codes_->of(fields) : Mac{};
}

void ObjectExchange::check(const std::string& what, const Mac& code,
                           std::initializer_list<MacKey::Field> fields, int source) const {
  if (!codes_ || codes_->fits(code, fields)) return;
  throw HostError(
      "{}: bytes that came in place of those of rank {} do not carry the code of the job's secret: "
      "another process has sent them; let nobody outside the job reach its hosts' ports",
      what, source);
}

std::vector<std::string> ObjectExchange::all_gather(const std::string& what, Group kind,
                                                    const std::string& bytes) {
  const std::vector<int>& ranks = groups_.ranks(kind);
  if (ranks.size() == 1) return {bytes};
  return all_gather(what, std::string(topology::name(kind)), ranks, groups_.cpu_group(kind), bytes);
}

std::vector<std::string> ObjectExchange::all_gather(const std::string& what,
                                                    const std::string& label,
                                                    const std::vector<int>& ranks,
                                                    const std::string& bytes) {
  if (ranks.size() == 1) return {bytes};
  return all_gather(what, label, ranks, groups_.cpu_group_of(label, ranks), bytes);
}

std::vector<std::string> ObjectExchange::all_gather(const std::string& what,
                                                    const std::string& label,
                                                    const std::vector<int>& ranks,
                                                    const GroupPtr& channel,
                                                    const std::string& bytes) {
  barriers_.all(fmt::format("{} over {}", what, label), "allgather/" + label, ranks);
  const auto gather = [&](const at::Tensor& mine) {
    std::vector<std::vector<at::Tensor>> all(1);
    for (std::size_t i = 0; i < ranks.size(); ++i) all[0].push_back(at::empty_like(mine));
    std::vector<at::Tensor> input{mine};
    try {
      channel->allgather(all, input)->wait();
    } catch (const std::exception& error) {
      throw lost_connection(what, barriers_.rank(), one_of_others(ranks, barriers_.rank()),
                            transport::error_text(error));
    }
    return std::move(all[0]);
  };
  const std::uint64_t call = ++gathers_[label];
  const auto announced = [&](const Announcement& part, int rank) {
    return fmt::format("{}/{}/{}/{}/{}/{}", label, ranks.front(), call, rank, part.size_bytes,
                       mac_text(part.bytes));
  };
  Announcement mine{.size_bytes = static_cast<std::int64_t>(bytes.size()),
                    .bytes = code_of({field(bytes)}),
                    .message = {}};
  mine.message = code_of({field(announced(mine, barriers_.rank()))});
  std::string_view own(reinterpret_cast<const char*>(&mine), sizeof(mine));
  std::vector<Announcement> parts;
  std::int64_t longest = 0;
  for (const at::Tensor& one : gather(tensor_of(own))) {
    Announcement& part = parts.emplace_back();
    std::memcpy(&part, one.const_data_ptr(), sizeof(part));
    const int rank = ranks[parts.size() - 1];
    check(what, part.message, {field(announced(part, rank))}, rank);
    longest = std::max(longest, part.size_bytes);
  }
  // c10d gathers equal sizes only.
  at::Tensor padded = at::zeros({longest}, at::kByte);
  std::memcpy(padded.mutable_data_ptr(), bytes.data(), bytes.size());
  const std::vector<at::Tensor> whole = gather(padded);
  std::vector<std::string> gathered;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    gathered.push_back(bytes_of(whole[i], parts[i].size_bytes));
    check(what, parts[i].bytes, {field(gathered.back())}, ranks[i]);
  }
  return gathered;
}

}  // namespace smp::session
