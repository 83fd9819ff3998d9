// SPDX-License-Identifier: Apache-2.0
// The backend's calls that move data as it is.
#include "smp_runtime/dataparallel/smddp_backend.h"
#include "smp_runtime/dataparallel/tensor_arguments.h"

namespace smp::dataparallel {

using collectives::CallHeader;
using collectives::Communicator;
using transport::WaitLimit;

SmddpBackend::WorkPtr SmddpBackend::broadcast(Tensors& tensors,
                                              const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = the_one(tensors, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  return start(c10d::OpType::BROADCAST, "broadcast", options.timeout, options.asyncOp, tensors,
               [call = header_of(tensor), root, landing = Landing(tensor, true)](
                   Communicator& group, const WaitLimit& limit) {
                 group.broadcast(call, root, bytes_out(landing.tensor()), limit);
                 landing.finish();
               });
}

SmddpBackend::WorkPtr SmddpBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  const at::Tensor& input = the_one(inputs, "all_gather");
  TORCH_CHECK_VALUE(outputs.size() == 1, "smddp: all_gather takes one list of outputs");
  check_alike(outputs.front(), input, size_, "all_gather");
  return start(
      c10d::OpType::ALLGATHER, "all_gather", options.timeout, options.asyncOp, outputs.front(),
      [call = header_of(input), source = contiguous(inputs).front(),
       landings = landings_of(outputs.front())](Communicator& group, const WaitLimit& limit) {
        group.all_gather(call, bytes_in(source), bytes_of(landings), limit);
        finish(landings);
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
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "smddp: all_gather_into_tensor got ",
                    outputs.size(), " outputs and ", inputs.size(), " inputs");
  std::vector<CallHeader> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_whole(outputs[i], inputs[i], size_, "all_gather_into_tensor");
    calls.push_back(header_of(inputs[i]));
  }
  return start(c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor", options.timeout,
               options.asyncOp, outputs,
               [calls, sources = contiguous(inputs), landings = landings_of(outputs)](
                   Communicator& group, const WaitLimit& limit) {
                 for (size_t i = 0; i < calls.size(); ++i) {
                   const auto parts = equal_parts(bytes_out(landings[i].tensor()), group.size());
                   group.all_gather(calls[i], bytes_in(sources[i]), parts, limit);
                 }
                 finish(landings);
               });
}

SmddpBackend::WorkPtr SmddpBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  std::vector<int64_t>& output_splits,
                                                  std::vector<int64_t>& input_splits,
                                                  const c10d::AllToAllOptions& options) {
  check_tensor(output, "all_to_all_single");
  check_tensor(input, "all_to_all_single");
  const Tensors source = contiguous({input});
  const Landing landing(output, false);
  CallHeader call = header_of(input);
  call.elements = 0;  // ranks may differ
  const auto inputs = split_parts(input, bytes_in(source.front()), input_splits, size_);
  const auto outputs = split_parts(output, bytes_out(landing.tensor()), output_splits, size_);
  return start(
      c10d::OpType::ALLTOALL_BASE, "all_to_all_single", options.timeout, options.asyncOp, {output},
      [call, source, landing, inputs, outputs](Communicator& group, const WaitLimit& limit) {
        group.all_to_all(call, inputs, outputs, limit);
        landing.finish();
      });
}

SmddpBackend::WorkPtr SmddpBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllToAllOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_) && inputs.size() == outputs.size(),
                    "smddp: all_to_all got ", inputs.size(), " inputs and ", outputs.size(),
                    " outputs for ", size_, " ranks");
  for (const at::Tensor& tensor : joined({inputs, outputs})) check_tensor(tensor, "all_to_all");
  CallHeader call = header_of(inputs.front());
  call.elements = 0;  // ranks may differ
  return start(c10d::OpType::ALLTOALL, "all_to_all", options.timeout, options.asyncOp, outputs,
               [call, sources = contiguous(inputs), landings = landings_of(outputs)](
                   Communicator& group, const WaitLimit& limit) {
                 group.all_to_all(call, bytes_of(sources), bytes_of(landings), limit);
                 finish(landings);
               });
}

SmddpBackend::WorkPtr SmddpBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::GatherOptions& options) {
  const at::Tensor& input = the_one(inputs, "gather");
  const int root = static_cast<int>(options.rootRank);
  const Tensors mine = joined(outputs);
  if (root == rank_) check_alike(mine, input, size_, "gather");
  TORCH_CHECK_VALUE(root == rank_ || mine.empty(), "smddp: gather: outputs belong to the root");
  return start(c10d::OpType::GATHER, "gather", options.timeout, options.asyncOp, mine,
               [call = header_of(input), root, source = contiguous(inputs).front(),
                landings = landings_of(mine)](Communicator& group, const WaitLimit& limit) {
                 group.gather(call, root, bytes_in(source), bytes_of(landings), limit);
                 finish(landings);
               });
}

SmddpBackend::WorkPtr SmddpBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ScatterOptions& options) {
  const at::Tensor& output = the_one(outputs, "scatter");
  const int root = static_cast<int>(options.rootRank);
  const Tensors mine = joined(inputs);
  if (root == rank_) check_alike(mine, output, size_, "scatter");
  TORCH_CHECK_VALUE(root == rank_ || mine.empty(), "smddp: scatter: inputs belong to the root");
  return start(c10d::OpType::SCATTER, "scatter", options.timeout, options.asyncOp, outputs,
               [call = header_of(output), root, sources = contiguous(mine),
                landing = Landing(output, false)](Communicator& group, const WaitLimit& limit) {
                 group.scatter(call, root, bytes_of(sources), bytes_out(landing.tensor()), limit);
                 landing.finish();
               });
}

SmddpBackend::WorkPtr SmddpBackend::barrier(const c10d::BarrierOptions& options) {
  return start(c10d::OpType::BARRIER, "barrier", options.timeout, options.asyncOp, {},
               [](Communicator& group, const WaitLimit& limit) { group.barrier(limit); });
}

void SmddpBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  start(c10d::OpType::BARRIER, "monitored_barrier", options.timeout, false, {},
        [](Communicator& group, const WaitLimit& limit) { group.barrier(limit); })
      ->wait();
}

}  // namespace smp::dataparallel
