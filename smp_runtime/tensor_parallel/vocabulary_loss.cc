// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/custom_function.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/tensor_type.h"
#include "smp_runtime/tensor_parallel/layer_operators.h"
#include "smp_runtime/tensor_parallel/row_kernels.h"

namespace smp::tensor_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Positions of the target words among the scores of this rank.
struct Columns {
  at::Tensor column;  ///< [n] of 64 bits; 0 where it is not ours
  at::Tensor mine;    ///< [n] of truths
};

at::Tensor wide(const at::Tensor& scores) {
  return scores.to(c10::promoteTypes(scores.scalar_type(), at::kFloat));
}

/// [n, 3]: the largest score of a row, the sum of exponentials below it, the score of its word or
/// 0.
at::Tensor loss_parts(const at::Tensor& scores, const Columns& own) {
  if constexpr (cuda::kBuilt) {
    if (const auto type = cuda::kernel_type(scores)) {
      const at::Tensor dense = scores.contiguous();
      const auto options =
          scores.options().dtype(c10::promoteTypes(scores.scalar_type(), at::kFloat));
      at::Tensor parts = at::empty({scores.size(0), 3}, options);
      launch_loss_parts(*type, scores.size(0), scores.size(1), dense.const_data_ptr(),
                        own.column.const_data_ptr<std::int64_t>(), own.mine.const_data_ptr<bool>(),
                        parts.data_ptr(), cuda::current_stream(scores));
      return parts;
    }
  }
  const at::Tensor values = wide(scores);
  const at::Tensor largest = values.amax(1);
  const at::Tensor sum = (values - largest.unsqueeze(1)).exp_().sum(1);
  const at::Tensor right =
      at::where(own.mine, values.gather(1, own.column.unsqueeze(1)).squeeze(1), 0.0);
  return at::stack({largest, sum, right}, -1);
}

/// The scores' gradient, from that of each row's loss.
at::Tensor loss_slopes(const at::Tensor& scores, const Columns& own, const at::Tensor& normaliser,
                       const at::Tensor& gradient) {
  if constexpr (cuda::kBuilt) {
    if (const auto type = cuda::kernel_type(scores)) {
      const at::Tensor dense = scores.contiguous();
      const at::Tensor each = gradient.to(normaliser.scalar_type()).contiguous();
      at::Tensor back = at::empty_like(dense);
      launch_loss_slopes(*type, scores.size(0), scores.size(1), dense.const_data_ptr(),
                         own.column.const_data_ptr<std::int64_t>(), own.mine.const_data_ptr<bool>(),
                         normaliser.const_data_ptr(), each.const_data_ptr(), back.data_ptr(),
                         cuda::current_stream(scores));
      return back;
    }
  }
  at::Tensor back = (scores.to(normaliser.scalar_type()) - normaliser.unsqueeze(1)).exp_();
  back.scatter_add_(1, own.column.unsqueeze(1),
                    own.mine.to(back.scalar_type()).neg_().unsqueeze(1));
  return back.mul_(gradient.unsqueeze(1)).to(scores.scalar_type());
}

struct VocabularyLoss : torch::autograd::Function<VocabularyLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores,
                            const at::Tensor& labels,
                            const std::shared_ptr<TensorExchange>& exchange, std::int64_t ignored) {
    const c10::DeviceGuard device(scores.device());
    const std::int64_t words = scores.size(1);
    const at::Tensor place = labels.to(at::kLong) - exchange->rank() * words;
    const at::Tensor counts = labels.ne(ignored);
    const at::Tensor mine = place.ge(0).logical_and_(place.lt(words)).logical_and_(counts);
    const Columns own{.column = at::where(mine, place, 0), .mine = mine};
    const at::Tensor all =  // [t, n, 3]
        exchange->move({.kind = RedistributionKind::kGather, .dim = 0},
                       loss_parts(scores, own).unsqueeze(0));
    const at::Tensor top = all.select(2, 0).amax(0);
    const at::Tensor total = (all.select(2, 1) * (all.select(2, 0) - top).exp_()).sum(0);
    const at::Tensor normaliser = top + total.log();
    context->save_for_backward({scores, normaliser, own.column, own.mine, counts});
    return at::where(counts, normaliser - all.select(2, 2).sum(0), 0.0);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const c10::DeviceGuard device(saved[0].device());
    const Columns own{.column = saved[2], .mine = saved[3]};
    return {loss_slopes(saved[0], own, saved[1], at::where(saved[4], gradients[0], 0.0)),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// Labels are 0 to `words` - 1 or `ignored`. On the CPU the error names the one that is not; on a
/// GPU, where the host does not wait, the device stops, as with torch's own loss.
void check_labels(const at::Tensor& labels, std::int64_t words, std::int64_t ignored) {
  if (labels.numel() == 0) return;
  const at::Tensor wrong =
      labels.ne(ignored).logical_and_(labels.lt(0).logical_or_(labels.ge(words)));
  if (!labels.is_cpu()) {
    at::_assert_async(wrong.any().logical_not_(),
                      fmt::format("vocabulary_loss: a label is none of 0 to {}, nor {} for none",
                                  words - 1, ignored));
    return;
  }
  if (wrong.any().item<bool>()) {
    throw ConfigError("a label is {}; expected 0 to {}, or {} for none",
                      labels.masked_select(wrong)[0].item<std::int64_t>(), words - 1, ignored);
  }
}

}  // namespace

at::Tensor vocabulary_loss(const std::shared_ptr<TensorExchange>& exchange,
                           const at::Tensor& scores, const at::Tensor& labels,
                           std::int64_t ignored) {
  if (scores.dim() != 2 || labels.dim() != 1 || labels.size(0) != scores.size(0)) {
    throw ConfigError("vocabulary_loss got scores of {} dims and {} labels for {} rows",
                      scores.dim(), labels.numel(), scores.dim() > 0 ? scores.size(0) : 0);
  }
  check_labels(labels, scores.size(1) * exchange->size(), ignored);
  return VocabularyLoss::apply(scores, labels, exchange, ignored);
}

}  // namespace smp::tensor_parallel
