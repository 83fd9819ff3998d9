// SPDX-License-Identifier: Apache-2.0
// The backend's calls that add up.
#include <utility>

#include <ATen/ops/empty_like.h>

#include "smp_runtime/smddp/backend/smddp_backend.h"
#include "smp_runtime/smddp/backend/sparse_sum.h"
#include "smp_runtime/smddp/backend/tensor_arguments.h"

namespace smp::smddp {

using collectives::CallSignature;
using collectives::Collective;
using collectives::Communicator;
using collectives::GpuRoute;
using transport::WaitLimit;

SmddpBackend::WorkPtr SmddpBackend::allreduce(Tensors& tensors,
                                              const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().is_sparse()) {
    return allreduce_sparse(tensors, options);
  }
  const DeviceScope scope(streams_, tensors);
  const at::Tensor& tensor = the_one(tensors, "all_reduce");
  const CallSignature header = reduction_of(tensor, options.reduceOp);
  const bool plain =
      static_cast<c10d::ReduceOp::RedOpType>(options.reduceOp) != c10d::ReduceOp::PREMUL_SUM;
  const GpuRoute route =
      plain ? gpu_route(scope, header, Collective::kAllReduce, tensor, options.timeout)
            : GpuRoute::kCpu;
  const Call call{c10d::OpType::ALLREDUCE, "all_reduce", options.timeout, options.asyncOp, tensors};
  if (route == GpuRoute::kCpu) return reduce_each(scope, call, tensors, options.reduceOp);
  return start(
      scope, call, tensors, [this, header, route, tensor](Communicator&, const WaitLimit& limit) {
        const at::Tensor own = writable(tensor, true);
        gpus_->all_reduce(route, header, own, cuda::current_stream(tensor.device()), limit);
        put_back(tensor, own);
      });
}

SmddpBackend::WorkPtr SmddpBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return reduce_each(DeviceScope(streams_, tensors),
                     {c10d::OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", options.timeout,
                      options.asyncOp, tensors},
                     tensors, options.reduceOp);
}

/// One sum after the other, in one work, through the CPU.
SmddpBackend::WorkPtr SmddpBackend::reduce_each(const DeviceScope& scope, Call call,
                                                const Tensors& tensors, const c10d::ReduceOp& op) {
  std::vector<CallSignature> calls;
  Tensors inputs;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, call.operation.c_str());
    calls.push_back(reduction_of(tensor, op));
    inputs.push_back(input_of(tensor, op));
  }
  return start(scope, std::move(call), tensors,
               [calls, inputs, buffers = staging_buffers_of(tensors)](Communicator& group,
                                                                      const WaitLimit& limit) {
                 for (size_t i = 0; i < calls.size(); ++i) {
                   group.all_reduce(calls[i], bytes_in(inputs[i]), bytes_out(buffers[i].tensor()),
                                    limit);
                 }
                 finish(buffers);
               });
}

SmddpBackend::WorkPtr SmddpBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const DeviceScope scope(streams_, tensors);
  const at::Tensor& tensor = the_one(tensors, "reduce");
  const CallSignature call = reduction_of(tensor, options.reduceOp);
  const int root = static_cast<int>(options.rootRank);
  const bool wants = root == rank_;
  return start(
      scope, {c10d::OpType::REDUCE, "reduce", options.timeout, options.asyncOp, tensors}, tensors,
      [call, root, wants, buffer = StagingBuffer(tensor, true),
       input = input_of(tensor, options.reduceOp)](Communicator& group, const WaitLimit& limit) {
        group.reduce(call, root, bytes_in(input), bytes_out(buffer.tensor()), limit);
        if (wants) buffer.finish();
      });
}

SmddpBackend::WorkPtr SmddpBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  const DeviceScope scope(streams_, joined({outputs, joined(inputs)}));
  const at::Tensor& output = the_one(outputs, "reduce_scatter");
  TORCH_CHECK_VALUE(inputs.size() == 1, "smddp: reduce_scatter takes one list of inputs");
  if (differ_in_size(inputs.front())) {
    return reduce_unequal(scope, output, inputs.front(), options);
  }
  check_alike(inputs.front(), output, size_, "reduce_scatter");
  const CallSignature call = reduction_of(output, options.reduceOp);
  Tensors sources;
  for (const at::Tensor& one : inputs.front()) sources.push_back(input_of(one, options.reduceOp));
  return start(scope,
               {c10d::OpType::REDUCE_SCATTER, "reduce_scatter", options.timeout, options.asyncOp,
                joined(inputs)},
               outputs,
               [call, sources, buffer = StagingBuffer(output, false)](Communicator& group,
                                                                      const WaitLimit& limit) {
                 group.reduce_scatter(call, bytes_of(sources), bytes_out(buffer.tensor()), limit);
                 buffer.finish();
               });
}

/// Scatters sums of different sizes: by a reduction to each rank.
SmddpBackend::WorkPtr SmddpBackend::reduce_unequal(const DeviceScope& scope,
                                                   const at::Tensor& output, const Tensors& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  check_types(inputs, output, size_, "reduce_scatter");
  TORCH_CHECK_VALUE(inputs[static_cast<size_t>(rank_)].numel() == output.numel(),
                    "smddp: reduce_scatter: the input for this rank is ",
                    inputs[static_cast<size_t>(rank_)].sizes(), ", its output ", output.sizes());
  std::vector<CallSignature> calls;
  Tensors sources;
  for (const at::Tensor& input : inputs) {
    calls.push_back(reduction_of(input, options.reduceOp));
    sources.push_back(input_of(input, options.reduceOp));
  }
  return start(
      scope,
      {c10d::OpType::REDUCE_SCATTER, "reduce_scatter", options.timeout, options.asyncOp, inputs},
      {output},
      [calls, sources, me = rank_, buffer = StagingBuffer(output, false)](Communicator& group,
                                                                          const WaitLimit& limit) {
        for (int root = 0; root < group.size(); ++root) {
          const auto i = static_cast<size_t>(root);
          const at::Tensor unused = root == me ? at::Tensor() : at::empty_like(sources[i]);
          group.reduce(calls[i], root, bytes_in(sources[i]),
                       bytes_out(root == me ? buffer.tensor() : unused), limit);
        }
        buffer.finish();
      });
}

/// Sparse tensors: all ranks get all entries, in the order of the ranks, and add them up alike.
SmddpBackend::WorkPtr SmddpBackend::allreduce_sparse(Tensors& tensors,
                                                     const c10d::AllreduceOptions& options) {
  const auto op = static_cast<c10d::ReduceOp::RedOpType>(options.reduceOp);
  TORCH_CHECK_VALUE(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG,
                    "smddp: sparse tensors can be added and averaged only");
  const at::Tensor& tensor = tensors.front();
  TORCH_CHECK_VALUE(tensor.layout() == at::kSparse,
                    "smddp: all_reduce takes strided and sparse COO tensors, not ",
                    tensor.layout());
  const DeviceScope scope(streams_, {tensor._indices()});
  const at::Tensor own = sparse_on_cpu(tensor);
  return start(scope,
               {c10d::OpType::_ALLREDUCE_SPARSE, "sparse_all_reduce", options.timeout,
                options.asyncOp, tensors},
               tensors, [tensor, own, op](Communicator& group, const WaitLimit& limit) {
                 put_back_sparse(tensor,
                                 sum_of_sparse(group, own, op == c10d::ReduceOp::AVG, limit));
               });
}

SmddpBackend::WorkPtr SmddpBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

SmddpBackend::WorkPtr SmddpBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const DeviceScope scope(streams_, joined({outputs, inputs}));
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "smddp: reduce_scatter_tensor got ",
                    outputs.size(), " outputs and ", inputs.size(), " inputs");
  std::vector<CallSignature> calls;
  bool by_nccl = !inputs.empty() && static_cast<c10d::ReduceOp::RedOpType>(options.reduceOp) !=
                                        c10d::ReduceOp::PREMUL_SUM;
  Tensors sources;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_whole(inputs[i], outputs[i], size_, "reduce_scatter_tensor");
    calls.push_back(reduction_of(outputs[i], options.reduceOp));
    by_nccl = by_nccl && gpu_route(scope, calls[i], Collective::kReduceScatter, outputs[i],
                                   options.timeout) == GpuRoute::kNccl;
  }
  const Call call{c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", options.timeout,
                  options.asyncOp, inputs};
  if (by_nccl) {
    return start(scope, call, outputs,
                 [this, calls, inputs, outputs](Communicator&, const WaitLimit& limit) {
                   for (size_t i = 0; i < calls.size(); ++i) {
                     const at::Tensor own = writable(outputs[i], false);
                     const at::Tensor whole = writable(inputs[i], true);
                     gpus_->reduce_scatter(calls[i], whole, own, cuda::current_stream(own.device()),
                                           limit);
                     cuda::note_use(inputs[i], cuda::current_stream(own.device()));
                     put_back(outputs[i], own);
                   }
                 });
  }
  for (const at::Tensor& input : inputs) sources.push_back(input_of(input, options.reduceOp));
  return start(scope, call, outputs,
               [calls, sources, buffers = staging_buffers_of(outputs)](Communicator& group,
                                                                       const WaitLimit& limit) {
                 for (size_t i = 0; i < calls.size(); ++i) {
                   const auto parts = equal_parts(bytes_in(sources[i]), group.size());
                   group.reduce_scatter(calls[i], parts, bytes_out(buffers[i].tensor()), limit);
                 }
                 finish(buffers);
               });
}

}  // namespace smp::smddp
