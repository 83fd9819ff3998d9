// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/optimizer/squares.h"

#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/tensor_type.h"
#include "smp_runtime/optimizer/squares_kernel.h"

namespace smp::optimizer {
namespace {

std::int64_t blocks_of(const std::vector<SquaredPiece>& pieces) {
  std::int64_t blocks = 0;
  cuda::in_tables(pieces, [&](const SquaredTable& table) { blocks += table.blocks(); });
  return blocks;
}

void square_on_cpu(cuda::NumberType type, const std::vector<SquaredPiece>& pieces, double* sums) {
  cuda::with_cpu_type(type, [&](auto number) {
    using T = decltype(number);
    cuda::in_tables(pieces, [&](const SquaredTable& table) {
      at::parallel_for(0, table.blocks(), 8, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t block = begin; block < end; ++block) {
          squares_block<T>(cuda::OneLane(), table, block, sums);
        }
      });
      sums += table.blocks();
    });
  });
}

constexpr std::int64_t kMeasuredAtOnce = 1 << 20;  // elements that torch copies to 64 bits

}  // namespace

at::Tensor sum_of_powers(const std::vector<at::Tensor>& tensors, double norm_type) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& tensor : tensors) {
    for (const at::Tensor& part : tensor.reshape({-1}).split(kMeasuredAtOnce)) {
      norms.push_back(
          at::linalg_vector_norm(part, norm_type, at::OptionalIntArrayRef(), false, at::kDouble));
    }
  }
  if (norms.empty()) return at::zeros({}, at::kDouble);
  const at::Tensor all = at::stack(norms).cpu();
  return std::isinf(norm_type) ? all.max() : all.pow(norm_type).sum();
}

at::Tensor squares_by_torch(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> sums;
  sums.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) sums.push_back(tensor.to(at::kDouble).square().sum());
  return at::stack(sums);
}

double sum_of_squares(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return 0;
  const at::NoGradGuard no_grad;
  const at::Tensor& front = tensors.front();
  const auto type = cuda::number_type(front.scalar_type());
  if (!type) {
    throw ConfigError(
        "gradients of type {} on {} cannot be measured; expected floats of 16 to 64 bits",
        toString(front.scalar_type()), front.device().str());
  }
  for (const at::Tensor& tensor : tensors) {
    SMP_CHECK(tensor.is_contiguous() && tensor.scalar_type() == front.scalar_type() &&
                  tensor.device() == front.device(),
              "gradients of {} on {} and of {} on {} are to be measured together",
              toString(front.scalar_type()), front.device().str(), toString(tensor.scalar_type()),
              tensor.device().str());
  }
  const bool kernel = cuda::kBuilt && front.is_cuda();
  if (!kernel && !front.is_cpu()) return squares_by_torch(tensors).sum().item<double>();
  std::vector<SquaredPiece> pieces;
  for (const at::Tensor& tensor : tensors) {
    pieces.push_back({.values = tensor.const_data_ptr(), .elements = tensor.numel()});
  }
  at::Tensor sums = at::empty({blocks_of(pieces)}, front.options().dtype(at::kDouble));
  if (kernel) {
    const c10::DeviceGuard device(front.device());
    launch_squares(*type, pieces, sums.mutable_data_ptr<double>(), cuda::current_stream(front));
  } else {
    square_on_cpu(*type, pieces, sums.mutable_data_ptr<double>());
  }
  return sums.sum().item<double>();
}

}  // namespace smp::optimizer
