// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/byte_view.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "smp_runtime/cuda/stream_event.h"

namespace smp::smddp {
namespace {

using collectives::CallSignature;

ElementType element_type(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return ElementType::kFloat16;
    case at::kBFloat16:
      return ElementType::kBFloat16;
    case at::kFloat:
    case at::kComplexFloat:
      return ElementType::kFloat32;
    case at::kDouble:
    case at::kComplexDouble:
      return ElementType::kFloat64;
    case at::kChar:
      return ElementType::kInt8;
    case at::kByte:
      return ElementType::kUint8;
    case at::kShort:
      return ElementType::kInt16;
    case at::kInt:
      return ElementType::kInt32;
    case at::kLong:
      return ElementType::kInt64;
    case at::kBool:
      return ElementType::kBool;
    default:
      return ElementType::kBytes;
  }
}

/// Contiguous, on the CPU, where copies of a GPU go by themselves.
at::Tensor pinned_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(),
                   tensor.options().device(at::kCPU).pinned_memory(true).requires_grad(false));
}

}  // namespace

void check_tensor(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == at::kStrided, "smddp: ", operation,
                    " takes dense tensors only");
  TORCH_CHECK_VALUE(!tensor.is_conj() && !tensor.is_neg(), "smddp: ", operation,
                    " got a conjugated view; call resolve_conj() or resolve_neg() before");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.is_cpu() || tensor.is_cuda(), "smddp: ", operation,
                              " got a tensor on ", tensor.device(),
                              "; it takes those of the CPU and of CUDA devices");
}

at::Tensor on_cpu(const at::Tensor& tensor) {
  // No autograd here: a collective reads as under no_grad.
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (!tensor.is_cuda()) return tensor.contiguous();
  const at::Tensor host = pinned_like(tensor);
  host.copy_(tensor, /*non_blocking=*/true);
  cuda::note_use(tensor, cuda::current_stream(tensor.device()));
  return host;
}

CallSignature header_of(const at::Tensor& tensor) {
  CallSignature call;
  call.type = element_type(tensor.scalar_type());
  call.elements = tensor.nbytes() / size_bytes(call.type);
  const std::string type_name(c10::getDtypeNames(tensor.scalar_type()).first);
  type_name.copy(call.type_name.data(), call.type_name.size());
  const auto dims = static_cast<size_t>(tensor.dim());
  call.dims = static_cast<uint8_t>(std::min<size_t>(dims, CallSignature::kMaxDims + 1));
  for (size_t dim = 0; dim < std::min(dims, call.shape.size()); ++dim) {
    call.shape[dim] = tensor.size(static_cast<int64_t>(dim));
  }
  return call;
}

collectives::ConstBytes bytes_in(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

collectives::Bytes bytes_out(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

StagingBuffer::StagingBuffer(at::Tensor target, bool keeps_content) : target_(std::move(target)) {
  // No autograd here: a collective writes as an in-place operation does under no_grad.
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (target_.is_cuda()) {
    staged_ = keeps_content ? on_cpu(target_) : pinned_like(target_);
  } else if (target_.is_contiguous()) {
    staged_ = target_;
  } else if (keeps_content) {
    staged_ = target_.contiguous();
  } else {
    staged_ = at::empty_like(target_, target_.options(), at::MemoryFormat::Contiguous);
  }
}

void StagingBuffer::finish() const {
  if (staged_.is_same(target_)) return;
  const at::AutoDispatchBelowADInplaceOrView guard;
  target_.copy_(staged_, /*non_blocking=*/true);
  if (target_.is_cuda()) cuda::note_use(target_, cuda::current_stream(target_.device()));
}

}  // namespace smp::smddp
