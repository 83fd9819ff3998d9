// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/ddp/gradient_reducer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/ddp/gradient_bucket.h"
#include "smp_runtime/record/recorder.h"
#include "smp_runtime/session/group_failure.h"
#include "smp_runtime/torch_compat/torch_compat.h"

namespace smp::ddp {
namespace {

using session::translate_c10d_errors;
using session::Uneven;
using torch::autograd::variable_list;

constexpr std::string_view kAveraging = "averaging gradients";

c10::intrusive_ptr<c10d::Work> start_all_reduce(c10d::ProcessGroup& group, const at::Tensor& tensor,
                                                c10d::ReduceOp::RedOpType operation,
                                                Uneven advice) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  return translate_c10d_errors(
      group, kAveraging, [&] { return group.allreduce(tensors, options); }, advice);
}

}  // namespace

class GradientReducer::Core {
 public:
  Core(Options options, std::vector<at::Tensor> parameters)
      : options_(std::move(options)),
        parameters_(std::move(parameters)),
        counts_(parameters_.size()),
        expected_(parameters_.size()),
        last_seen_(parameters_.size()),
        bucket_of_(parameters_.size(), kNone),
        late_(parameters_.size()) {}

  /// Hooks may outlive the core when a parameter does.
  void watch(const std::shared_ptr<Core>& self) {
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
      auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[index]);
      if (!accumulator) continue;  // frozen
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [weak = std::weak_ptr<Core>(self), index](const variable_list& outputs,
                                                    const variable_list& inputs) {
            if (const auto core = weak.lock()) core->note(index, inputs[0]);
            return outputs;
          }));
      accumulators_.push_back(std::move(accumulator));  // a parameter holds its own weakly
    }
  }

  void set_comm_hook(std::unique_ptr<c10d::CommHookInterface> hook) { hook_ = std::move(hook); }

  void begin_step(bool due) {
    if (std::any_of(counts_.begin(), counts_.end(), [](auto count) { return count > 0; })) {
      expected_ = counts_;
    }
    std::fill(counts_.begin(), counts_.end(), 0);
    std::fill(late_.begin(), late_.end(), at::Tensor());
    armed_ = due && options_.overlap && !buckets_.empty();
    next_ = 0;
    for (GradientBucket& bucket : buckets_) {
      bucket.sent = false;
      bucket.flat.reset();
      bucket.missing = static_cast<std::size_t>(
          std::count_if(bucket.parameters.begin(), bucket.parameters.end(),
                        [&](std::size_t index) { return expected_[index] > 0; }));
    }
  }

  void average() {
    const at::NoGradGuard no_grad;
    progress_ = {};
    const bool armed = std::exchange(armed_, false);
    if (parameters_.empty() || (group()->getSize() == 1 && !hook_)) return;
    if (armed) {
      progress_.early = static_cast<std::int64_t>(next_);
      while (next_ < buckets_.size()) send(next_++);
    }
    // One flag a parameter: it has a gradient; one a bucket: some of it came after it was sent.
    const std::vector<bool> flags = agree(armed);
    std::vector<GradientBucket> extra;
    if (armed) {
      Indices unplanned;
      for (std::size_t index = 0; index < parameters_.size(); ++index) {
        if (flags[index] && bucket_of_[index] == kNone) unplanned.push_back(index);
      }
      extra = cut_into_buckets(parameters_, unplanned, options_.bucket_bytes);
    } else {
      Indices present;
      for (std::size_t index = 0; index < parameters_.size(); ++index) {
        if (flags[index]) present.push_back(index);
      }
      plan(present);
    }
    auto& rest = armed ? extra : buckets_;
    for (std::size_t index = 0; index < rest.size(); ++index) send(rest[index], index, rest.size());
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      finish(buckets_[index], flags, armed && flags[parameters_.size() + index], index);
    }
    for (GradientBucket& bucket : extra) finish(bucket, flags, false, 0);
    progress_.buckets = static_cast<std::int64_t>(buckets_.size() + extra.size());
    if (!extra.empty()) buckets_.clear();  // learn anew
  }

  [[nodiscard]] Progress progress() const { return progress_; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  /// By its name each time: who holds a group keeps its connections beyond the session, and a rank
  /// that still waits there is not told that this one has left.
  [[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> group() const {
    return c10d::resolve_process_group(options_.group_name);
  }

  /// A gradient was added to a parameter.
  void note(std::size_t index, const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    ++counts_[index];
    last_seen_[index] = ++clock_;
    if (!armed_ || bucket_of_[index] == kNone) return;
    GradientBucket& bucket = buckets_[bucket_of_[index]];
    const at::NoGradGuard no_grad;
    if (bucket.sent) {
      at::Tensor& late = late_[index];
      // The engine may still use `gradient`: never change it.
      late = late.defined() ? late.add(gradient) : gradient.detach().clone();
      return;
    }
    if (counts_[index] != expected_[index]) return;
    --bucket.missing;
    // In one order on all ranks, whatever the order in which they are ready.
    for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) send(next_);
  }

  void send(std::size_t index) { send(buckets_[index], index, buckets_.size()); }

  void send(GradientBucket& bucket, std::size_t index, std::size_t count) {
    const at::NoGradGuard no_grad;
    for (const std::size_t parameter : bucket.parameters) {
      const at::Tensor& gradient = parameters_[parameter].grad();
      if (gradient.defined()) refuse_sparse(gradient, parameter);
    }
    bucket.flat =
        flattened(bucket, [&](std::size_t parameter) { return parameters_[parameter].grad(); });
    bucket.sent = true;
    start(bucket, index, count);
  }

  /// Divided unless a hook is to see them.
  [[nodiscard]] at::Tensor flattened(const GradientBucket& bucket,
                                     const GradientOf& gradient_of) const {
    return ddp::flattened(bucket, parameters_, gradient_of, hook_ ? 1 : group()->getSize());
  }

  void start(GradientBucket& bucket, std::size_t index, std::size_t count) {
    if (!hook_) {
      bucket.work = start_all_reduce(*group(), bucket.flat, c10d::ReduceOp::SUM, advice());
      if (options_.recorder) {
        // By ring arithmetic: each element leaves a rank twice, but for its share.
        const auto bytes = static_cast<std::int64_t>(bucket.flat.nbytes());
        options_.recorder->sent(options_.watch->members(options_.group_name),
                                2 * bytes / group()->getSize());
      }
      return;
    }
    c10d::GradBucket given = hook_argument(bucket, parameters_, index, count);
    bucket.hooked = hook_->runHook(given);
    const auto backend = group()->getBackend(bucket.flat.device().type());
    bucket.work = wait_of(*bucket.hooked, backend->getBackendOptions()->timeout);
  }

  void await(c10d::Work& work) {
    const record::Waited waited(options_.recorder.get(), record::Activity::kReduce,
                                [] { return std::string("averaging gradients"); });
    session::await(*group(), kAveraging, work, parameters_[0].device().type(), advice(),
                   options_.watch.get());
  }

  [[nodiscard]] Uneven advice() const { return session::uneven(options_.may_join); }

  /// The reduced bucket, averaged.
  at::Tensor result_of(GradientBucket& bucket) {
    await(*bucket.work);
    bucket.work.reset();
    if (!hook_) return std::move(bucket.flat);
    bucket.hooked->wait();  // no longer; for the streams that use it
    if (bucket.hooked->hasError()) bucket.hooked->value();  // rethrows
    at::Tensor result = hook_->parseHookResult(bucket.hooked->value());
    bucket.hooked.reset();
    if (result.numel() != bucket.flat.numel()) {
      throw UserCodeError("the communication hook returned {} elements for a bucket of {}",
                          result.numel(), bucket.flat.numel());
    }
    return result;
  }

  void finish(GradientBucket& bucket, const std::vector<bool>& flags, bool late,
              std::size_t index) {
    at::Tensor result = result_of(bucket);
    if (late) {
      bucket.flat = flattened(bucket, [&](std::size_t parameter) { return late_[parameter]; });
      start(bucket, index, buckets_.size());
      result = result.add(result_of(bucket));
    }
    std::int64_t offset = 0;
    for (const std::size_t parameter : bucket.parameters) {
      const std::int64_t count = parameters_[parameter].numel();
      const at::Tensor part = result.narrow(0, offset, count);
      offset += count;
      if (!flags[parameter]) continue;  // on no rank: an optimizer takes zeros for a gradient
      at::Tensor& gradient = parameters_[parameter].mutable_grad();
      if (!hook_ && may_be_view(parameters_[parameter], gradient)) {
        // No view to autograd: optimizers of torch::optim detach gradients in place.
        const at::AutoDispatchBelowADInplaceOrView guard;
        gradient = part.view(parameters_[parameter].sizes());
        continue;
      }
      if (!gradient.defined()) gradient = at::zeros_like(parameters_[parameter]);
      gradient.copy_(part.view(gradient.sizes()));
    }
    bucket.flat.reset();
  }

  /// True if the gradient may become a part of the bucket's memory, which is nobody else's: that
  /// saves a copy of all gradients behind the backward.
  static bool may_be_view(const at::Tensor& parameter, const at::Tensor& gradient) {
    return parameter.is_contiguous() && (!gradient.defined() || gradient.is_contiguous());
  }

  std::vector<bool> agree(bool with_buckets) {
    const std::size_t count = parameters_.size() + (with_buckets ? buckets_.size() : 0);
    at::Tensor tensor = at::empty({static_cast<std::int64_t>(count)}, at::kByte);
    auto* flags = tensor.data_ptr<std::uint8_t>();
    for (std::size_t index = 0; index < count; ++index) {
      const bool parameter = index < parameters_.size();
      flags[index] = parameter ? parameters_[index].grad().defined()
                               : is_late(buckets_[index - parameters_.size()]);
    }
    if (options_.flags_group_name.empty()) {
      tensor = agreed(*group(), tensor.to(parameters_[0].device())).cpu();
    } else {
      tensor = agreed(*c10d::resolve_process_group(options_.flags_group_name), tensor);
    }
    flags = tensor.data_ptr<std::uint8_t>();
    return std::vector<bool>(flags, flags + count);
  }

  /// The largest of each number over the ranks, in place.
  at::Tensor agreed(c10d::ProcessGroup& group, const at::Tensor& numbers) {
    if (group.getSize() == 1) return numbers;
    const auto work = start_all_reduce(group, numbers, c10d::ReduceOp::MAX, advice());
    const record::Waited waited(options_.recorder.get(), record::Activity::kReduce,
                                [] { return std::string("which gradients there are"); });
    session::await(group, kAveraging, *work, numbers.device().type(), advice(),
                   options_.watch.get());
    return numbers;
  }

  [[nodiscard]] bool is_late(const GradientBucket& bucket) const {
    return std::any_of(bucket.parameters.begin(), bucket.parameters.end(),
                       [&](std::size_t index) { return late_[index].defined(); });
  }

  /// Buckets for the parameters that have gradients, in the order in which they are final.
  void plan(Indices present) {
    std::reverse(present.begin(), present.end());  // about that order, whatever happened
    if (options_.overlap) {
      std::stable_sort(present.begin(), present.end(), [&](std::size_t one, std::size_t other) {
        return last_seen_[one] < last_seen_[other];
      });
      share(present);
    }
    buckets_ = cut_into_buckets(parameters_, present, options_.bucket_bytes);
    std::fill(bucket_of_.begin(), bucket_of_.end(), kNone);
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      for (const std::size_t index : buckets_[bucket].parameters) bucket_of_[index] = bucket;
    }
  }

  /// All ranks take the order of the first.
  void share(Indices& order) {
    if (order.empty() || group()->getSize() == 1) return;
    at::Tensor tensor = at::empty({static_cast<std::int64_t>(order.size())}, at::kLong);
    std::copy(order.begin(), order.end(), tensor.data_ptr<std::int64_t>());
    std::vector<at::Tensor> tensors{tensor.to(parameters_[0].device())};
    await(*group()->broadcast(tensors));
    tensor = tensors[0].cpu();
    std::copy_n(tensor.data_ptr<std::int64_t>(), order.size(), order.begin());
  }

  static void refuse_sparse(const at::Tensor& gradient, std::size_t index) {
    if (!gradient.is_sparse()) return;
    throw UserCodeError(
        "the gradient of parameter {} (shape {}) is sparse; averaging sparse gradients is not "
        "available yet: make its layer without sparse=True",
        index, fmt::join(gradient.sizes(), "x"));
  }

  const Options options_;
  const std::vector<at::Tensor> parameters_;
  std::vector<torch_compat::NodePtr> accumulators_;
  std::unique_ptr<c10d::CommHookInterface> hook_;
  std::vector<GradientBucket> buckets_;  ///< as learned; empty: to be learned
  std::vector<std::uint32_t> counts_;    ///< gradients in this step
  std::vector<std::uint32_t> expected_;  ///< gradients in the last step that had any
  std::vector<std::uint64_t> last_seen_;
  std::uint64_t clock_ = 0;
  Indices bucket_of_;
  std::vector<at::Tensor> late_;
  bool armed_ = false;
  std::size_t next_ = 0;  ///< first bucket that was not sent
  Progress progress_;
};

GradientReducer::GradientReducer(Options options, std::vector<at::Tensor> parameters)
    : core_(std::make_shared<Core>(std::move(options), std::move(parameters))) {
  core_->watch(core_);
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::set_comm_hook(std::unique_ptr<c10d::CommHookInterface> hook) {
  core_->set_comm_hook(std::move(hook));
}

void GradientReducer::begin_step(bool due) { core_->begin_step(due); }

void GradientReducer::average() { core_->average(); }

GradientReducer::Progress GradientReducer::progress() const { return core_->progress(); }

}  // namespace smp::ddp
