// SPDX-License-Identifier: Apache-2.0
// The backend's calls that add up.
#include "smp_runtime/dataparallel/smddp_backend.h"
#include "smp_runtime/dataparallel/tensor_arguments.h"

namespace smp::dataparallel {

using collectives::CallHeader;
using collectives::Communicator;
using transport::WaitLimit;

SmddpBackend::WorkPtr SmddpBackend::allreduce(Tensors& tensors,
                                              const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "all_reduce");
  const CallHeader call = reduction_of(tensor, options.reduceOp);
  return start(c10d::OpType::ALLREDUCE, "all_reduce", options.timeout, options.asyncOp, tensors,
               [call, landing = Landing(tensor, false), input = input_of(tensor, options.reduceOp)](
                   Communicator& group, const WaitLimit& limit) {
                 group.all_reduce(call, bytes_in(input), bytes_out(landing.tensor()), limit);
                 landing.finish();
               });
}

SmddpBackend::WorkPtr SmddpBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  std::vector<CallHeader> calls;
  Tensors inputs;
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, "all_reduce_coalesced");
    calls.push_back(reduction_of(tensor, options.reduceOp));
    inputs.push_back(input_of(tensor, options.reduceOp));
  }
  return start(c10d::OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", options.timeout,
               options.asyncOp, tensors,
               [calls, inputs, landings = landings_of(tensors)](Communicator& group,
                                                                const WaitLimit& limit) {
                 for (size_t i = 0; i < calls.size(); ++i) {
                   group.all_reduce(calls[i], bytes_in(inputs[i]), bytes_out(landings[i].tensor()),
                                    limit);
                 }
                 finish(landings);
               });
}

SmddpBackend::WorkPtr SmddpBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "reduce");
  const CallHeader call = reduction_of(tensor, options.reduceOp);
  const int root = static_cast<int>(options.rootRank);
  const bool wants = root == rank_;
  return start(
      c10d::OpType::REDUCE, "reduce", options.timeout, options.asyncOp, tensors,
      [call, root, wants, landing = Landing(tensor, true),
       input = input_of(tensor, options.reduceOp)](Communicator& group, const WaitLimit& limit) {
        group.reduce(call, root, bytes_in(input), bytes_out(landing.tensor()), limit);
        if (wants) landing.finish();
      });
}

SmddpBackend::WorkPtr SmddpBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = the_one(outputs, "reduce_scatter");
  TORCH_CHECK_VALUE(inputs.size() == 1, "smddp: reduce_scatter takes one list of inputs");
  check_alike(inputs.front(), output, size_, "reduce_scatter");
  const CallHeader call = reduction_of(output, options.reduceOp);
  Tensors sources;
  for (const at::Tensor& one : inputs.front()) sources.push_back(input_of(one, options.reduceOp));
  return start(c10d::OpType::REDUCE_SCATTER, "reduce_scatter", options.timeout, options.asyncOp,
               outputs,
               [call, sources, landing = Landing(output, false)](Communicator& group,
                                                                 const WaitLimit& limit) {
                 group.reduce_scatter(call, bytes_of(sources), bytes_out(landing.tensor()), limit);
                 landing.finish();
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
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "smddp: reduce_scatter_tensor got ",
                    outputs.size(), " outputs and ", inputs.size(), " inputs");
  std::vector<CallHeader> calls;
  Tensors sources;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_whole(inputs[i], outputs[i], size_, "reduce_scatter_tensor");
    calls.push_back(reduction_of(outputs[i], options.reduceOp));
    sources.push_back(input_of(inputs[i], options.reduceOp));
  }
  return start(c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", options.timeout,
               options.asyncOp, outputs,
               [calls, sources, landings = landings_of(outputs)](Communicator& group,
                                                                 const WaitLimit& limit) {
                 for (size_t i = 0; i < calls.size(); ++i) {
                   const auto parts = equal_parts(bytes_in(sources[i]), group.size());
                   group.reduce_scatter(calls[i], parts, bytes_out(landings[i].tensor()), limit);
                 }
                 finish(landings);
               });
}

}  // namespace smp::dataparallel
