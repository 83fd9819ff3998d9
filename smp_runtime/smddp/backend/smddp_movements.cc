// SPDX-License-Identifier: Apache-2.0
// The backend's calls that move data as it is.
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/backend/smddp_backend.h"
#include "smp_runtime/smddp/backend/tensor_arguments.h"

namespace smp::smddp {

using collectives::CallSignature;
using collectives::Collective;
using collectives::Communicator;
using collectives::GpuRoute;
using transport::WaitLimit;

SmddpBackend::WorkPtr SmddpBackend::broadcast(Tensors& tensors,
                                              const c10d::BroadcastOptions& options) {
  const DeviceScope scope(streams_, tensors);
  const at::Tensor& tensor = the_one(tensors, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  const CallSignature header = header_of(tensor);
  const Call call{c10d::OpType::BROADCAST, "broadcast", options.timeout, options.asyncOp, tensors};
  if (gpu_route(scope, header, Collective::kBroadcast, tensor, options.timeout) ==
      GpuRoute::kNccl) {
    return start(scope, call, tensors,
                 [this, header, root, tensor](Communicator&, const WaitLimit& limit) {
                   const at::Tensor own = writable(tensor, true);
                   gpus_->broadcast(header, root, own, cuda::current_stream(own.device()), limit);
                   put_back(tensor, own);
                 });
  }
  return start(scope, call, tensors,
               [header, root, buffer = StagingBuffer(tensor, true)](Communicator& group,
                                                                    const WaitLimit& limit) {
                 group.broadcast(header, root, bytes_out(buffer.tensor()), limit);
                 buffer.finish();
               });
}

SmddpBackend::WorkPtr SmddpBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  const DeviceScope scope(streams_,
                          joined({outputs.empty() ? Tensors() : outputs.front(), inputs}));
  const at::Tensor& input = the_one(inputs, "all_gather");
  TORCH_CHECK_VALUE(outputs.size() == 1, "smddp: all_gather takes one list of outputs");
  if (differ_in_size(outputs.front()))
    return gather_unequal(scope, outputs.front(), input, options);
  check_alike(outputs.front(), input, size_, "all_gather");
  return start(
      scope, {c10d::OpType::ALLGATHER, "all_gather", options.timeout, options.asyncOp, inputs},
      outputs.front(),
      [call = header_of(input), source = on_cpu(inputs).front(),
       buffers = staging_buffers_of(outputs.front())](Communicator& group, const WaitLimit& limit) {
        group.all_gather(call, bytes_in(source), bytes_of(buffers), limit);
        finish(buffers);
      });
}

/// Gathers tensors of different sizes, as every rank's list of outputs gives them: each rank sends
/// its own to all others.
SmddpBackend::WorkPtr SmddpBackend::gather_unequal(const DeviceScope& scope, const Tensors& outputs,
                                                   const at::Tensor& input,
                                                   const c10d::AllgatherOptions& options) {
  check_types(outputs, input, size_, "all_gather");
  TORCH_CHECK_VALUE(outputs[static_cast<size_t>(rank_)].numel() == input.numel(),
                    "smddp: all_gather: the output for this rank is ",
                    outputs[static_cast<size_t>(rank_)].sizes(), ", its input ", input.sizes());
  CallSignature call = header_of(input);
  call.elements = 0;  // ranks differ
  return start(scope,
               {c10d::OpType::ALLGATHER, "all_gather", options.timeout, options.asyncOp, {input}},
               outputs,
               [call, source = on_cpu(input), buffers = staging_buffers_of(outputs)](
                   Communicator& group, const WaitLimit& limit) {
                 const std::vector<collectives::ConstBytes> same(buffers.size(), bytes_in(source));
                 group.all_to_all(call, same, bytes_of(buffers), limit);
                 finish(buffers);
               });
}

SmddpBackend::WorkPtr SmddpBackend::allgather_coalesced(std::vector<Tensors>& outputs,
                                                        Tensors& inputs,
                                                        const c10d::AllgatherOptions& options) {
  const DeviceScope scope(streams_, joined({joined(outputs), inputs}));
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_),
                    "smddp: all_gather_coalesced got ", outputs.size(), " lists of outputs for ",
                    size_, " ranks");
  std::vector<CallSignature> calls;
  std::vector<std::vector<StagingBuffer>> buffers;  // by input
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors parts;
    for (const Tensors& list : outputs) {
      TORCH_CHECK_VALUE(list.size() == inputs.size(), "smddp: all_gather_coalesced got a list of ",
                        list.size(), " outputs for ", inputs.size(), " inputs");
      parts.push_back(list[i]);
    }
    check_tensor(inputs[i], "all_gather_coalesced");
    check_alike(parts, inputs[i], size_, "all_gather_coalesced");
    calls.push_back(header_of(inputs[i]));
    buffers.push_back(staging_buffers_of(parts));
  }
  return start(
      scope,
      {c10d::OpType::ALLGATHER_COALESCED, "all_gather_coalesced", options.timeout, options.asyncOp,
       inputs},
      joined(outputs),
      [calls, sources = on_cpu(inputs), buffers](Communicator& group, const WaitLimit& limit) {
        for (size_t i = 0; i < calls.size(); ++i) {
          group.all_gather(calls[i], bytes_in(sources[i]), bytes_of(buffers[i]), limit);
          finish(buffers[i]);
        }
      });
}

SmddpBackend::WorkPtr SmddpBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

SmddpBackend::WorkPtr SmddpBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const DeviceScope scope(streams_, joined({outputs, inputs}));
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "smddp: all_gather_into_tensor got ",
                    outputs.size(), " outputs and ", inputs.size(), " inputs");
  bool by_nccl = !inputs.empty();
  std::vector<CallSignature> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_whole(outputs[i], inputs[i], size_, "all_gather_into_tensor");
    calls.push_back(header_of(inputs[i]));
    by_nccl = by_nccl && gpu_route(scope, calls[i], Collective::kAllGather, inputs[i],
                                   options.timeout) == GpuRoute::kNccl;
  }
  const Call call{c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor", options.timeout,
                  options.asyncOp, inputs};
  if (by_nccl) {
    return start(scope, call, outputs,
                 [this, calls, inputs, outputs](Communicator&, const WaitLimit& limit) {
                   for (size_t i = 0; i < calls.size(); ++i) {
                     const at::Tensor own = writable(outputs[i], false);
                     const at::Tensor part = writable(inputs[i], true);
                     gpus_->all_gather(calls[i], part, own, cuda::current_stream(own.device()),
                                       limit);
                     cuda::note_use(inputs[i], cuda::current_stream(own.device()));
                     put_back(outputs[i], own);
                   }
                 });
  }
  return start(scope, call, outputs,
               [calls, sources = on_cpu(inputs), buffers = staging_buffers_of(outputs)](
                   Communicator& group, const WaitLimit& limit) {
                 for (size_t i = 0; i < calls.size(); ++i) {
                   const auto parts = equal_parts(bytes_out(buffers[i].tensor()), group.size());
                   group.all_gather(calls[i], bytes_in(sources[i]), parts, limit);
                 }
                 finish(buffers);
               });
}

SmddpBackend::WorkPtr SmddpBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  std::vector<int64_t>& output_splits,
                                                  std::vector<int64_t>& input_splits,
                                                  const c10d::AllToAllOptions& options) {
  const DeviceScope scope(streams_, {output, input});
  check_tensor(output, "all_to_all_single");
  check_tensor(input, "all_to_all_single");
  const at::Tensor source = on_cpu(input);
  const StagingBuffer buffer(output, false);
  CallSignature call = header_of(input);
  call.elements = 0;  // ranks may differ
  const auto inputs = split_parts(input, bytes_in(source), input_splits, size_);
  const auto outputs = split_parts(output, bytes_out(buffer.tensor()), output_splits, size_);
  return start(
      scope,
      {c10d::OpType::ALLTOALL_BASE, "all_to_all_single", options.timeout, options.asyncOp, {input}},
      {output},
      [call, source, buffer, inputs, outputs](Communicator& group, const WaitLimit& limit) {
        group.all_to_all(call, inputs, outputs, limit);
        buffer.finish();
      });
}

SmddpBackend::WorkPtr SmddpBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllToAllOptions& options) {
  const DeviceScope scope(streams_, joined({outputs, inputs}));
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_) && inputs.size() == outputs.size(),
                    "smddp: all_to_all got ", inputs.size(), " inputs and ", outputs.size(),
                    " outputs for ", size_, " ranks");
  for (const at::Tensor& tensor : joined({inputs, outputs})) check_tensor(tensor, "all_to_all");
  CallSignature call = header_of(inputs.front());
  call.elements = 0;  // ranks may differ
  return start(scope,
               {c10d::OpType::ALLTOALL, "all_to_all", options.timeout, options.asyncOp, inputs},
               outputs,
               [call, sources = on_cpu(inputs), buffers = staging_buffers_of(outputs)](
                   Communicator& group, const WaitLimit& limit) {
                 group.all_to_all(call, bytes_of(sources), bytes_of(buffers), limit);
                 finish(buffers);
               });
}

SmddpBackend::WorkPtr SmddpBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::GatherOptions& options) {
  const DeviceScope scope(streams_, joined({joined(outputs), inputs}));
  const at::Tensor& input = the_one(inputs, "gather");
  const int root = static_cast<int>(options.rootRank);
  const Tensors mine = joined(outputs);
  if (root == rank_) check_alike(mine, input, size_, "gather");
  TORCH_CHECK_VALUE(root == rank_ || mine.empty(), "smddp: gather: outputs belong to the root");
  return start(scope, {c10d::OpType::GATHER, "gather", options.timeout, options.asyncOp, inputs},
               mine,
               [call = header_of(input), root, source = on_cpu(inputs).front(),
                buffers = staging_buffers_of(mine)](Communicator& group, const WaitLimit& limit) {
                 group.gather(call, root, bytes_in(source), bytes_of(buffers), limit);
                 finish(buffers);
               });
}

SmddpBackend::WorkPtr SmddpBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ScatterOptions& options) {
  const DeviceScope scope(streams_, joined({outputs, joined(inputs)}));
  const at::Tensor& output = the_one(outputs, "scatter");
  const int root = static_cast<int>(options.rootRank);
  const Tensors mine = joined(inputs);
  if (root == rank_) check_alike(mine, output, size_, "scatter");
  TORCH_CHECK_VALUE(root == rank_ || mine.empty(), "smddp: scatter: inputs belong to the root");
  return start(
      scope, {c10d::OpType::SCATTER, "scatter", options.timeout, options.asyncOp, mine}, outputs,
      [call = header_of(output), root, sources = on_cpu(mine),
       buffer = StagingBuffer(output, false)](Communicator& group, const WaitLimit& limit) {
        group.scatter(call, root, bytes_of(sources), bytes_out(buffer.tensor()), limit);
        buffer.finish();
      });
}

SmddpBackend::WorkPtr SmddpBackend::barrier(const c10d::BarrierOptions& options) {
  const DeviceScope scope(streams_, {});
  return start(scope, {c10d::OpType::BARRIER, "barrier", options.timeout, options.asyncOp, {}}, {},
               [](Communicator& group, const WaitLimit& limit) { group.barrier(limit); });
}

/// Each rank sets a key in the store, which does not care who is gone; breaks the group if not all
/// come in time. The keys stay: a few bytes a rank.
void SmddpBackend::count_ranks(Communicator& group, const WaitLimit& limit) {
  const auto key_of = [&group, count = counts_](int rank) {
    return fmt::format("{}came/{}/{}", group.key_prefix(), count, rank);
  };
  keys_.set(key_of(rank_), "");
  ++counts_;
  std::vector<int> missing(static_cast<size_t>(size_));
  std::iota(missing.begin(), missing.end(), 0);
  while (true) {
    std::erase_if(missing, [&](int rank) { return keys_.has(key_of(rank)); });
    if (missing.empty()) return;
    group.throw_if_broken();
    limit.look();
    if (Clock::now() > limit.deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (int& rank : missing) rank = group.name(rank);
  const std::string reason =
      fmt::format("{}: waited {} ms for rank(s) {}, which did not take part", limit.operation,
                  limit.timeout.count(), fmt::join(missing, ", "));
  group.abort(reason);
  throw HostError(reason);
}

void SmddpBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  start(DeviceScope(streams_, {}),
        {c10d::OpType::BARRIER, "monitored_barrier", options.timeout, false, {}}, {},
        [this, wait_all_ranks](Communicator& group, const WaitLimit& limit) {
          if (wait_all_ranks) count_ranks(group, limit);
          group.barrier(limit);
        })
      ->wait();
}

}  // namespace smp::smddp
