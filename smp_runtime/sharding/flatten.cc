// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/flatten.h"

#include <optional>

#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/tensor_type.h"
#include "smp_runtime/sharding/flatten_kernel.h"

namespace smp::sharding {
namespace {

/// The type that all sources have; the flat tensor's own where there are none. Nothing if they
/// differ.
std::optional<at::ScalarType> common_type(const at::Tensor& flat,
                                          const std::vector<FlatPart>& parts) {
  std::optional<at::ScalarType> type;
  for (const FlatPart& part : parts) {
    if (!part.source.defined()) continue;
    if (type && *type != part.source.scalar_type()) return std::nullopt;
    type = part.source.scalar_type();
  }
  return type.value_or(flat.scalar_type());
}

bool kernel_knows(at::ScalarType target, at::ScalarType source) {
  const bool narrow = source == at::kHalf || source == at::kBFloat16;
  return cuda::number_type(target) && (source == target || (target == at::kFloat && narrow));
}

void flatten_on_gpu(const at::Tensor& flat, const std::vector<FlatPart>& parts,
                    at::ScalarType source) {
  std::vector<at::Tensor> kept;  // until the kernel is in the stream behind which they are freed
  std::vector<FlatPiece> pieces;
  const auto memory = [&](const at::Tensor& tensor) -> const void* {
    if (!tensor.defined()) return nullptr;
    kept.push_back(tensor.contiguous());
    return kept.back().const_data_ptr();
  };
  for (const FlatPart& part : parts) {
    pieces.push_back({.target = flat.narrow(0, part.offset, part.elements).data_ptr(),
                      .source = memory(part.source),
                      .added = memory(part.added),
                      .elements = part.elements});
  }
  const c10::DeviceGuard device(flat.device());
  launch_flatten(*cuda::number_type(flat.scalar_type()), *cuda::number_type(source), pieces,
                 cuda::current_stream(flat));
}

}  // namespace

void flatten(const at::Tensor& flat, const std::vector<FlatPart>& parts) {
  const at::NoGradGuard no_grad;
  SMP_CHECK(flat.is_contiguous(), "a flat tensor with gaps");
  for (const FlatPart& part : parts) {
    for (const at::Tensor& tensor : {part.source, part.added}) {
      SMP_CHECK(!tensor.defined() ||
                    (tensor.numel() == part.elements && tensor.device() == flat.device()),
                "a part of {} elements on {} got {} on {}", part.elements, flat.device().str(),
                tensor.numel(), tensor.device().str());
    }
  }
  if constexpr (cuda::kBuilt) {
    const auto source = common_type(flat, parts);
    if (flat.is_cuda() && source && kernel_knows(flat.scalar_type(), *source)) {
      flatten_on_gpu(flat, parts, *source);
      return;
    }
  }
  for (const FlatPart& part : parts) {
    at::Tensor target = flat.narrow(0, part.offset, part.elements);
    if (!part.added.defined()) {
      part.source.defined() ? target.copy_(part.source.reshape({-1})) : target.zero_();
      continue;
    }
    if (part.added.data_ptr() != target.data_ptr()) target.copy_(part.added.reshape({-1}));
    if (part.source.defined()) target.add_(part.source.reshape({-1}));
  }
}

}  // namespace smp::sharding
