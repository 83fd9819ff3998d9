// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/object_exchange.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "smp_runtime/session/group_failure.h"

namespace smp::session {
namespace {

using topology::Group;

at::Tensor buffer_of(std::int64_t size) { return at::empty({size}, at::kByte); }

at::Tensor tensor_of(const std::string& bytes) {
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
  std::vector<std::string> calls;
  for (const int rank : receivers) {
    calls.push_back(barriers_.announce(label, rank, std::to_string(bytes.size())));
  }
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
  const std::int64_t size = std::stoll(note);
  std::vector<at::Tensor> tensors{buffer_of(size)};
  try {
    groups_.cpu_group(Group::kWorld)->recv(tensors, source, 0)->wait();
  } catch (const std::exception& error) {
    throw lost_connection(what, barriers_.rank(), described({source}),
                          transport::error_text(error));
  }
  return bytes_of(tensors[0], size);
}

std::vector<std::string> ObjectExchange::all_gather(const std::string& what, Group kind,
                                                    const std::string& bytes) {
  const std::vector<int>& ranks = groups_.ranks(kind);
  if (ranks.size() == 1) return {bytes};
  const std::string_view name = topology::name(kind);
  barriers_.all(fmt::format("{} over {}", what, name), fmt::format("allgather/{}", name), ranks);
  const GroupPtr channel = groups_.cpu_group(kind);
  const auto gather = [&](const at::Tensor& mine) {
    std::vector<std::vector<at::Tensor>> all(1);
    for (std::size_t i = 0; i < ranks.size(); ++i) all[0].push_back(at::empty_like(mine));
    std::vector<at::Tensor> input{mine};
    channel->allgather(all, input)->wait();
    return std::move(all[0]);
  };
  try {
    std::vector<std::int64_t> sizes;
    for (const at::Tensor& size : gather(at::tensor(static_cast<std::int64_t>(bytes.size())))) {
      sizes.push_back(size.item<std::int64_t>());
    }
    // c10d gathers equal sizes only.
    at::Tensor padded = at::zeros({std::ranges::max(sizes)}, at::kByte);
    std::memcpy(padded.mutable_data_ptr(), bytes.data(), bytes.size());
    const std::vector<at::Tensor> parts = gather(padded);
    std::vector<std::string> gathered;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      gathered.push_back(bytes_of(parts[i], sizes[i]));
    }
    return gathered;
  } catch (const std::exception& error) {
    throw lost_connection(what, barriers_.rank(), one_of_others(ranks, barriers_.rank()),
                          transport::error_text(error));
  }
}

}  // namespace smp::session
