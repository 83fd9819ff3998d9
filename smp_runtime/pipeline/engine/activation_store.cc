// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/activation_store.h"

#include <utility>

#include "smp_runtime/core/named_thread.h"
#include "smp_runtime/pipeline/engine/activation_arena.h"

namespace smp::pipeline {
namespace {

constexpr std::size_t kLeastBytes = 1024;

}  // namespace

ActivationStore::Handle::Handle(std::shared_ptr<ActivationArena> arena,
                                std::shared_ptr<Entry> entry)
    : arena_(std::move(arena)), entry_(std::move(entry)) {}

ActivationStore::Handle::~Handle() { arena_->forget(entry_); }

at::Tensor ActivationStore::Handle::take() { return arena_->take(entry_); }

ActivationStore::ActivationStore(Options options)
    : arena_(std::make_shared<ActivationArena>(options)),
      helper_(named_thread("smp-activations", [arena = arena_] { arena->run(); })) {}

ActivationStore::~ActivationStore() {
  arena_->stop();
  helper_.join();
}

std::shared_ptr<ActivationStore::Handle> ActivationStore::put(const at::Tensor& tensor,
                                                              std::int64_t microbatch) {
  const bool plain = !tensor.is_inference() && tensor.layout() == at::kStrided &&
                     (tensor.is_cpu() || tensor.is_cuda()) &&
                     tensor.is_non_overlapping_and_dense() && !tensor.is_conj() && !tensor.is_neg();
  if (!plain || tensor.nbytes() < kLeastBytes) return nullptr;
  return std::shared_ptr<Handle>(new Handle(arena_, arena_->put(tensor, microbatch)));
}

ActivationStore::Stats ActivationStore::stats() const { return arena_->stats(); }

}  // namespace smp::pipeline
