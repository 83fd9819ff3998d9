// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/optimizer/adam_by_torch.h"

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>

namespace smp::optimizer {

void adam_by_torch(const AdamTensors& tensors, const AdamNumbers& numbers) {
  const at::NoGradGuard no_grad;
  const auto wide = c10::promoteTypes(tensors.parameter.scalar_type(), at::kFloat);
  const auto widened = [wide](const at::Tensor& tensor) {
    return tensor.to(wide, /*non_blocking=*/false, /*copy=*/true);
  };
  at::Tensor weight = widened(tensors.parameter);
  if (numbers.decoupled) weight.mul_(1 - numbers.rate * numbers.decay);
  at::Tensor slope = widened(tensors.gradient).mul_(numbers.factor);
  if (!numbers.decoupled && numbers.decay != 0) slope.add_(weight, numbers.decay);
  at::Tensor mean = widened(tensors.first).mul_(numbers.beta1).add_(slope, 1 - numbers.beta1);
  at::Tensor square =
      widened(tensors.second).mul_(numbers.beta2).addcmul_(slope, slope, 1 - numbers.beta2);
  const at::Tensor denominator =
      square.sqrt().div_(std::sqrt(numbers.scale2)).add_(numbers.epsilon);
  tensors.first.copy_(mean);
  tensors.second.copy_(square);
  tensors.parameter.copy_(weight.addcdiv_(mean.div_(numbers.scale1), denominator, -numbers.rate));
}

}  // namespace smp::optimizer
