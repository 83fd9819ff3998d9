// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/vocabulary_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/custom_function.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/tensor_parallel/exchange_handle.h"

namespace smp::tensor_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct VocabularyLoss : torch::autograd::Function<VocabularyLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores,
                            const at::Tensor& labels,
                            const std::shared_ptr<TensorExchange>& exchange, std::int64_t ignored) {
    const at::Tensor wide = scores.to(c10::promoteTypes(scores.scalar_type(), at::kFloat));
    const std::int64_t words = scores.size(1);
    const at::Tensor place = labels - exchange->rank() * words;
    const at::Tensor counts = labels.ne(ignored);
    const at::Tensor mine = place.ge(0).logical_and_(place.lt(words)).logical_and_(counts);
    const at::Tensor column = at::where(mine, place, 0).unsqueeze(1);
    const at::Tensor largest = wide.amax(1);
    const at::Tensor sum = (wide - largest.unsqueeze(1)).exp_().sum(1);
    const at::Tensor right = at::where(mine, wide.gather(1, column).squeeze(1), 0.0);
    const at::Tensor all =  // [t, n, 3]
        exchange->move({.kind = MovementKind::kGather, .dim = 0},
                       at::stack({largest, sum, right}, -1).unsqueeze(0));
    const at::Tensor top = all.select(2, 0).amax(0);
    const at::Tensor total = (all.select(2, 1) * (all.select(2, 0) - top).exp_()).sum(0);
    const at::Tensor normaliser = top + total.log();
    context->save_for_backward({scores, normaliser, column, mine, counts});
    return at::where(counts, normaliser - all.select(2, 2).sum(0), 0.0);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& normaliser = saved[1];
    at::Tensor back = (saved[0].to(normaliser.scalar_type()) - normaliser.unsqueeze(1)).exp_();
    back.scatter_add_(1, saved[2], saved[3].to(back.scalar_type()).neg_().unsqueeze(1));
    back.mul_(at::where(saved[4], gradients[0], 0.0).unsqueeze(1));
    return {back.to(saved[0].scalar_type()), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor vocabulary_loss(const std::shared_ptr<TensorExchange>& exchange,
                           const at::Tensor& scores, const at::Tensor& labels,
                           std::int64_t ignored) {
  if (scores.dim() != 2 || labels.dim() != 1 || labels.size(0) != scores.size(0)) {
    throw ConfigError("vocabulary_loss got scores of {} dims and {} labels for {} rows",
                      scores.dim(), labels.numel(), scores.dim() > 0 ? scores.size(0) : 0);
  }
  const std::int64_t words = scores.size(1) * exchange->size();
  if (labels.is_cpu() && labels.numel() > 0) {
    const at::Tensor wrong =
        labels.ne(ignored).logical_and_(labels.lt(0).logical_or_(labels.ge(words)));
    if (wrong.any().item<bool>()) {
      throw ConfigError("a label is {}; expected 0 to {}, or {} for none",
                        labels.masked_select(wrong)[0].item<std::int64_t>(), words - 1, ignored);
    }
  }
  return VocabularyLoss::apply(scores, labels, exchange, ignored);
}

}  // namespace smp::tensor_parallel
