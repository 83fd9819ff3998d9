// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/gradient_ledger.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace smp::pipeline {

/// Pre-hook of a leaf's AccumulateGrad, which does nothing with an undefined gradient. There it
/// runs behind the hooks of the tensor, which are the users'.
class GradientLedger::Hook : public torch::autograd::FunctionPreHook {
 public:
  Hook(std::shared_ptr<GradientLedger*> ledger, size_t entry)
      : ledger_(std::move(ledger)), entry_(entry) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    if (*ledger_ == nullptr || !gradients[0].defined()) return gradients;
    return {(*ledger_)->record(entry_, gradients[0])};
  }

 private:
  std::shared_ptr<GradientLedger*> ledger_;
  size_t entry_;
};

GradientLedger::GradientLedger(bool ordered, std::function<int64_t()> microbatch,
                               std::function<void()> seen)
    : ordered_(ordered),
      microbatch_(std::move(microbatch)),
      seen_(std::move(seen)),
      self_(std::make_shared<GradientLedger*>(this)) {}

GradientLedger::~GradientLedger() { *self_ = nullptr; }

void GradientLedger::track(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    entries_.push_back(std::make_unique<Entry>(
        Entry{.parameter = parameter, .accumulator = {}, .by_microbatch = {}}));
    watch(entries_.size() - 1);
  }
}

void GradientLedger::watch(size_t entry) {
  auto accumulator = torch::autograd::impl::grad_accumulator(entries_[entry]->parameter);
  if (!accumulator || accumulator == entries_[entry]->accumulator) return;
  accumulator->add_pre_hook(std::make_unique<Hook>(self_, entry));
  accumulators_.erase(entries_[entry]->accumulator.get());
  accumulators_.insert(accumulator.get());
  entries_[entry]->accumulator = std::move(accumulator);  // the leaf holds its own weakly
}

DeferredGradients::Leaf GradientLedger::leaf(torch::autograd::Node& node) const {
  using Leaf = DeferredGradients::Leaf;
  if (!accumulators_.contains(&node)) return Leaf::kOther;
  const bool is_seen =
      !node.tensor_pre_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
  return is_seen ? Leaf::kHooked : Leaf::kParameter;
}

at::Tensor GradientLedger::record(size_t entry, const at::Tensor& gradient) {
  seen_();
  const int64_t microbatch = microbatch_();
  if (microbatch < 0 || !ordered_) return gradient;
  at::Tensor& sum = entries_[entry]->by_microbatch[microbatch];
  const at::NoGradGuard no_grad;
  // The engine may still use `gradient`: keep it, never change it.
  sum = sum.defined() ? sum.add(gradient) : gradient.detach();
  return {};
}

void GradientLedger::finish(int64_t microbatch) {
  if (!ordered_) return;
  const at::NoGradGuard no_grad;
  if (finished_.size() <= static_cast<size_t>(microbatch)) {
    finished_.resize(static_cast<size_t>(microbatch) + 1, false);
  }
  finished_[static_cast<size_t>(microbatch)] = true;
  for (; static_cast<size_t>(next_) < finished_.size() && finished_[static_cast<size_t>(next_)];
       ++next_) {
    for (const auto& entry : entries_) {
      const auto found = entry->by_microbatch.find(next_);
      if (found == entry->by_microbatch.end()) continue;
      at::Tensor& grad = entry->parameter.mutable_grad();
      if (grad.defined()) {
        grad.add_(found->second);
      } else {
        grad = found->second.clone(at::MemoryFormat::Contiguous);
      }
      entry->by_microbatch.erase(found);
    }
  }
}

void GradientLedger::reset() {
  for (size_t entry = 0; entry < entries_.size(); ++entry) {
    entries_[entry]->by_microbatch.clear();
    watch(entry);  // one that was frozen, or moved to another device, has a new one
  }
  finished_.clear();
  next_ = 0;
}

}  // namespace smp::pipeline
