// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/optimizer/adam.h"

#include <array>
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/tensor_type.h"

namespace smp::optimizer {
namespace {

/// The four tensors of one parameter, with their elements in one order.
class Aligned {
 public:
  explicit Aligned(std::array<at::Tensor, 4> tensors) : own_(std::move(tensors)), used_(own_) {
    bool alike = own_[0].is_non_overlapping_and_dense();
    for (const at::Tensor& tensor : own_) alike &= tensor.strides() == own_[0].strides();
    if (alike) return;
    for (at::Tensor& tensor : used_) tensor = tensor.contiguous();
  }

  [[nodiscard]] AdamPiece piece() const {
    return {.parameter = used_[0].data_ptr(),
            .gradient = used_[1].const_data_ptr(),
            .first = used_[2].data_ptr(),
            .second = used_[3].data_ptr(),
            .elements = used_[0].numel()};
  }

  /// To where copies were taken from.
  void finish() const {
    for (const std::size_t index : {0U, 2U, 3U}) {
      if (used_[index].is_same(own_[index])) {
        own_[index].unsafeGetTensorImpl()->bump_version();
      } else {
        own_[index].copy_(used_[index]);
      }
    }
  }

 private:
  std::array<at::Tensor, 4> own_;
  std::array<at::Tensor, 4> used_;
};

void check_alike(const at::Tensor& like, const at::Tensor& tensor, const char* what) {
  if (tensor.sizes() == like.sizes() && tensor.scalar_type() == like.scalar_type() &&
      tensor.device() == like.device()) {
    return;
  }
  throw ConfigError("Adam got a {} of shape [{}], {} on {} for a parameter of shape [{}], {} on {}",
                    what, fmt::join(tensor.sizes(), ", "), toString(tensor.scalar_type()),
                    tensor.device().str(), fmt::join(like.sizes(), ", "),
                    toString(like.scalar_type()), like.device().str());
}

void step_on_cpu(cuda::NumberType type, const std::vector<AdamPiece>& pieces,
                 const AdamNumbers& numbers) {
  cuda::with_cpu_type(type, [&](auto number) {
    using T = decltype(number);
    cuda::in_tables(pieces, [&](const AdamTable& table) {
      at::parallel_for(0, table.blocks(), 8, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t block = begin; block < end; ++block) {
          adam_block<T>(cuda::OneLane(), table, block, numbers);
        }
      });
    });
  });
}

}  // namespace

void adam_step(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
               const std::vector<at::Tensor>& first, const std::vector<at::Tensor>& second,
               const AdamNumbers& numbers) {
  SMP_CHECK(gradients.size() == parameters.size() && first.size() == parameters.size() &&
                second.size() == parameters.size(),
            "Adam got lists of {}, {}, {} and {} tensors", parameters.size(), gradients.size(),
            first.size(), second.size());
  if (parameters.empty()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor& front = parameters.front();
  const auto type = cuda::number_type(front.scalar_type());
  if (!type) {
    throw ConfigError("Adam got a parameter of type {} on {}; it steps floats of 16 to 64 bits",
                      toString(front.scalar_type()), front.device().str());
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    SMP_CHECK(parameters[i].scalar_type() == front.scalar_type() &&
                  parameters[i].device() == front.device(),
              "Adam got parameters of {} on {} and of {} on {} in one list",
              toString(front.scalar_type()), front.device().str(),
              toString(parameters[i].scalar_type()), parameters[i].device().str());
    check_alike(parameters[i], gradients[i], "gradient");
    check_alike(parameters[i], first[i], "moment");
    check_alike(parameters[i], second[i], "moment");
  }
  const bool kernel = cuda::kBuilt && front.is_cuda();
  if (!kernel && !front.is_cpu()) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      adam_by_torch({parameters[i], gradients[i], first[i], second[i]}, numbers);
    }
    return;
  }
  std::vector<Aligned> aligned;
  std::vector<AdamPiece> pieces;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    aligned.emplace_back(std::array{parameters[i], gradients[i], first[i], second[i]});
    pieces.push_back(aligned.back().piece());
  }
  if (kernel) {
    const c10::DeviceGuard device(front.device());
    launch_adam(*type, pieces, numbers, cuda::current_stream(front));
  } else {
    step_on_cpu(*type, pieces, numbers);
  }
  for (const Aligned& one : aligned) one.finish();
}

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
