// SPDX-License-Identifier: Apache-2.0
// The backend's messages between two ranks.
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/backend/pending_work.h"
#include "smp_runtime/smddp/backend/smddp_backend.h"
#include "smp_runtime/smddp/backend/tensor_arguments.h"
#include "smp_runtime/transport/fabric/fabric_link.h"
#include "smp_runtime/transport/shared_memory_link.h"

namespace smp::smddp {

using collectives::Communicator;

/// The messages of pairs of ranks; made by the first call that needs them.
PointToPoint& SmddpBackend::pairs() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!stopping_, "smddp: send or recv was called after the group was shut down");
  if (pairs_) return *pairs_;
  std::vector<int> names;
  std::vector<std::string> texts;
  for (int rank = 0; rank < size_; ++rank) {
    names.push_back(communicator_->name(rank));
    texts.push_back(fmt::format("rank {}", names.back()));
  }
  Communicator* const group = communicator_.get();
  try {
    std::unique_ptr<transport::Link> link;
    if (group->hosts() == 1) {
      link = std::make_unique<transport::SharedMemoryLink>(rank_, std::move(texts));
    } else {
      transport::FabricSettings settings = group->fabric_settings();
      settings.card = rank_;
      settings.ordered = true;
      link = std::make_unique<transport::FabricLink>(settings);
    }
    pair_keys_ = std::make_unique<session::C10dStore>(session::own_connection(
        c10::make_intrusive<c10d::PrefixStore>(group->key_prefix(), store_)));
    pairs_ = std::make_unique<PointToPoint>(
        *pair_keys_, std::move(link),
        PointToPoint::Group{.rank = rank_,
                            .names = std::move(names),
                            .throw_if_broken = [group] { group->throw_if_broken(); },
                            .presence = [group](int rank) { return group->presence(rank); }},
        [this](const c10::intrusive_ptr<PendingWork>& work, const std::exception_ptr& error) {
          work->end(as_torch_error(error), &callbacks_);
        });
  } catch (const Error&) {
    std::rethrow_exception(as_torch_error(std::current_exception()));
  }
  return *pairs_;
}

c10::intrusive_ptr<PendingWork> SmddpBackend::pair_work(const DeviceScope& scope, c10d::OpType type,
                                                        Tensors& tensors, int tag,
                                                        const char* operation) {
  check_caller(operation);
  the_one(tensors, operation);
  TORCH_CHECK_VALUE(tag >= 0, "smddp: ", operation, " got the tag ", tag, ", which is negative");
  const char* const title = type == c10d::OpType::RECVANYSOURCE ? "recvAnySource" : operation;
  const PendingWork::Call shown{.type = type,
                                .sequence = 0,
                                .title = fmt::format("smddp:{}", title),
                                .inputs = tensors,
                                .between_all = false};
  auto work = c10::make_intrusive<PendingWork>(rank_, shown, tensors, scope.up());
  const std::lock_guard lock(mutex_);
  if (coalesced_) coalesced_->push_back(work);
  return work;
}

SmddpBackend::WorkPtr SmddpBackend::send(Tensors& tensors, int destination, int tag) {
  const DeviceScope scope(streams_, tensors);
  auto work = pair_work(scope, c10d::OpType::SEND, tensors, tag, "send");
  {
    const std::lock_guard lock(mutex_);
    const int to = names_[static_cast<size_t>(destination)];
    if (traffic_) traffic_->sent({&to, 1}, static_cast<int64_t>(tensors.front().nbytes()));
  }
  pairs().send(work, tensors.front(), destination, static_cast<uint32_t>(tag), timeout_);
  return work;
}

SmddpBackend::WorkPtr SmddpBackend::recv(Tensors& tensors, int source, int tag) {
  const DeviceScope scope(streams_, tensors);
  auto work = pair_work(scope, c10d::OpType::RECV, tensors, tag, "recv");
  pairs().receive(work, tensors.front(), source, static_cast<uint32_t>(tag), timeout_);
  return work;
}

SmddpBackend::WorkPtr SmddpBackend::recvAnysource(Tensors& tensors, int tag) {
  const DeviceScope scope(streams_, tensors);
  auto work = pair_work(scope, c10d::OpType::RECVANYSOURCE, tensors, tag, "recv");
  pairs().receive(work, tensors.front(), -1, static_cast<uint32_t>(tag), timeout_);
  return work;
}

}  // namespace smp::smddp
