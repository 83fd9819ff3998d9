// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/tensor_arguments.h"

#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/stream_event.h"

namespace smp::smddp {
namespace {

using TorchOp = c10d::ReduceOp::RedOpType;

ReduceOp operation_of(TorchOp op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:  // input_of() multiplies
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAverage;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBitAnd;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBitOr;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBitXor;
    default:
      C10_THROW_ERROR(ValueError, "smddp: unknown reduction");
  }
}

}  // namespace

using collectives::Bytes;
using collectives::CallSignature;
using collectives::ConstBytes;

const at::Tensor& the_one(const std::vector<at::Tensor>& tensors, const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "smddp: ", operation, " takes one tensor, got ",
                    tensors.size());
  check_tensor(tensors.front(), operation);
  return tensors.front();
}

CallSignature reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  CallSignature call = header_of(tensor);
  call.op = operation_of(op);
  TORCH_CHECK_TYPE(call.type != ElementType::kBytes, "smddp: tensors of ", tensor.scalar_type(),
                   " can be moved, not reduced");
  TORCH_CHECK_VALUE(!tensor.is_complex() || call.op <= ReduceOp::kAverage,
                    "smddp: complex tensors can be added and averaged only");
  try {
    check_reducible(call.type, call.op);
  } catch (const ConfigError& error) {
    C10_THROW_ERROR(TypeError, error.what());
  }
  return call;
}

at::Tensor input_of(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (static_cast<TorchOp>(op) != c10d::ReduceOp::PREMUL_SUM) return on_cpu(tensor);
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(factor != nullptr, "smddp: a premultiplied sum without a factor");
  const at::Tensor product = factor->tensor_factor.defined() ? tensor.mul(factor->tensor_factor)
                                                             : tensor.mul(factor->double_factor);
  return on_cpu(product.to(tensor.scalar_type()));
}

std::vector<StagingBuffer> staging_buffers_of(const std::vector<at::Tensor>& tensors) {
  std::vector<StagingBuffer> buffers;
  for (const at::Tensor& tensor : tensors) buffers.emplace_back(tensor, false);
  return buffers;
}

std::vector<Bytes> bytes_of(const std::vector<StagingBuffer>& buffers) {
  std::vector<Bytes> bytes;
  for (const StagingBuffer& buffer : buffers) bytes.push_back(bytes_out(buffer.tensor()));
  return bytes;
}

std::vector<ConstBytes> bytes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<ConstBytes> bytes;
  for (const at::Tensor& tensor : tensors) bytes.push_back(bytes_in(tensor));
  return bytes;
}

void finish(const std::vector<StagingBuffer>& buffers) {
  for (const StagingBuffer& buffer : buffers) buffer.finish();
}

at::Tensor writable(const at::Tensor& target, bool keeps_content) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (keeps_content || target.is_contiguous()) return target.contiguous();
  return at::empty_like(target, target.options(), at::MemoryFormat::Contiguous);
}

void put_back(const at::Tensor& target, const at::Tensor& written) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (!written.is_same(target)) target.copy_(written);
  cuda::note_use(target, cuda::current_stream(target.device()));
}

std::vector<at::Tensor> on_cpu(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(on_cpu(tensor));
  return result;
}

std::vector<at::Tensor> joined(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

void check_alike(const std::vector<at::Tensor>& tensors, const at::Tensor& like, int count,
                 const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == static_cast<size_t>(count), "smddp: ", operation, " got ",
                    tensors.size(), " tensors for ", count, " ranks");
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, operation);
    TORCH_CHECK_VALUE(tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel(),
                      "smddp: ", operation, ": a tensor of ", tensor.scalar_type(), " ",
                      tensor.sizes(), " beside one of ", like.scalar_type(), " ", like.sizes(),
                      "; all must have one size and type");
  }
}

void check_types(const std::vector<at::Tensor>& tensors, const at::Tensor& like, int count,
                 const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == static_cast<size_t>(count), "smddp: ", operation, " got ",
                    tensors.size(), " tensors for ", count, " ranks");
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, operation);
    TORCH_CHECK_VALUE(tensor.scalar_type() == like.scalar_type(), "smddp: ", operation,
                      ": a tensor of ", tensor.scalar_type(), " beside one of ", like.scalar_type(),
                      "; all must have one type");
  }
}

bool differ_in_size(const std::vector<at::Tensor>& tensors) {
  return std::ranges::any_of(
      tensors, [&](const at::Tensor& one) { return one.numel() != tensors.front().numel(); });
}

void check_whole(const at::Tensor& whole, const at::Tensor& part, int count,
                 const char* operation) {
  check_tensor(whole, operation);
  check_tensor(part, operation);
  TORCH_CHECK_VALUE(
      whole.scalar_type() == part.scalar_type() && whole.numel() == part.numel() * count,
      "smddp: ", operation, ": ", whole.scalar_type(), " ", whole.sizes(), " is not ", count,
      " times ", part.scalar_type(), " ", part.sizes());
}

}  // namespace smp::smddp
