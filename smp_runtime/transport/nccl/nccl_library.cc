// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/nccl/nccl_library.h"

#include <cstring>

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/nccl/nccl_advice.h"

namespace smp::transport {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));

ncclDataType_t type_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return ncclFloat32;
    case c10::ScalarType::Double:
      return ncclFloat64;
    case c10::ScalarType::Half:
      return ncclFloat16;
    case c10::ScalarType::BFloat16:
      return ncclBfloat16;
    case c10::ScalarType::Char:
      return ncclInt8;
    case c10::ScalarType::Int:
      return ncclInt32;
    case c10::ScalarType::Long:
      return ncclInt64;
    default:
      return ncclUint8;
  }
}

ncclRedOp_t reduction_of(ReduceOp reduction) {
  switch (reduction) {
    case ReduceOp::kProduct:
      return ncclProd;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kAverage:
      return ncclAvg;
    default:
      return ncclSum;
  }
}

NcclOutcome outcome_of(ncclResult_t result, ncclComm_t communicator) {
  if (result == ncclSuccess) return {};
  if (result == ncclInProgress) return {.state = NcclOutcome::State::kInProgress, .reason = {}};
  return {
      .state = NcclOutcome::State::kFailed,
      .reason = fmt::format("{} ({})", ncclGetErrorString(result), ncclGetLastError(communicator))};
}

class LinkedNccl : public NcclLibrary {
 public:
  explicit LinkedNccl(int device) : device_(static_cast<c10::DeviceIndex>(device)) {}

  NcclId new_id() override {
    ncclUniqueId id;
    const NcclOutcome outcome = outcome_of(ncclGetUniqueId(&id), nullptr);
    if (outcome.state == NcclOutcome::State::kFailed) {
      throw HostError(
          "NCCL cannot start: {}; NCCL_DEBUG=INFO tells more, NCCL_SOCKET_IFNAME "
          "names the interface{}",
          outcome.reason, nccl_advice(outcome.reason));
    }
    NcclId bytes;
    std::memcpy(bytes.data(), &id, sizeof(id));
    return bytes;
  }

  NcclOutcome begin(Handle& made, const NcclId& bytes, int rank, int size) override {
    const c10::cuda::CUDAGuard guard(device_);
    ncclUniqueId id;
    std::memcpy(&id, bytes.data(), sizeof(id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return outcome_of(ncclCommInitRankConfig(&made, size, id, rank, &config), made);
  }

  NcclOutcome launch(Handle communicator, std::span<const NcclOperation> operations,
                     void* stream) override {
    const c10::cuda::CUDAGuard guard(device_);
    ncclResult_t first = ncclGroupStart();
    for (const NcclOperation& one : operations) {
      if (first == ncclSuccess) first = add(communicator, one, static_cast<cudaStream_t>(stream));
    }
    const ncclResult_t end = ncclGroupEnd();
    return outcome_of(first == ncclSuccess || first == ncclInProgress ? end : first, communicator);
  }

  NcclOutcome state(Handle communicator) override {
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &result);
    return outcome_of(asked == ncclSuccess ? result : asked, communicator);
  }

  NcclOutcome finalize(Handle communicator) override {
    const c10::cuda::CUDAGuard guard(device_);
    return outcome_of(ncclCommFinalize(communicator), communicator);
  }

  void destroy(Handle communicator) override {
    const c10::cuda::CUDAGuard guard(device_);
    ncclCommDestroy(communicator);
  }

  void abort(Handle communicator) override {
    if (communicator == nullptr) return;
    const c10::cuda::CUDAGuard guard(device_);
    ncclCommAbort(communicator);
  }

 private:
  static ncclResult_t add(Handle communicator, const NcclOperation& one, cudaStream_t stream) {
    const ncclDataType_t type = type_of(one.type);
    switch (one.kind) {
      case NcclOperation::Kind::kSend:
        return ncclSend(one.from, one.count, type, one.peer, communicator, stream);
      case NcclOperation::Kind::kReceive:
        return ncclRecv(one.to, one.count, type, one.peer, communicator, stream);
      case NcclOperation::Kind::kAllReduce:
        return ncclAllReduce(one.from, one.to, one.count, type, reduction_of(one.reduction),
                             communicator, stream);
      case NcclOperation::Kind::kReduceScatter:
        return ncclReduceScatter(one.from, one.to, one.count, type, reduction_of(one.reduction),
                                 communicator, stream);
      case NcclOperation::Kind::kAllGather:
        return ncclAllGather(one.from, one.to, one.count, type, communicator, stream);
      case NcclOperation::Kind::kBroadcast:
        return ncclBroadcast(one.from, one.to, one.count, type, one.peer, communicator, stream);
    }
    return ncclInvalidArgument;
  }

  const c10::DeviceIndex device_;
};

}  // namespace

std::unique_ptr<NcclLibrary> nccl_library(int cuda_device) {
  return std::make_unique<LinkedNccl>(cuda_device);
}

int nccl_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

std::string gpu_identity(int cuda_device) {
  std::array<char, 32> text{};
  const cudaError_t error =
      cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), cuda_device);
  if (error != cudaSuccess) {
    throw HostError("CUDA device {}: {}; nvidia-smi lists those of this host", cuda_device,
                    cudaGetErrorString(error));
  }
  return text.data();
}

}  // namespace smp::transport
