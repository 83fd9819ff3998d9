// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/dataparallel/smddp_backend.h"

#include <numeric>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <pthread.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/dataparallel/byte_view.h"
#include "smp_runtime/dataparallel/c10d_store.h"
#include "smp_runtime/dataparallel/knobs.h"

namespace smp::dataparallel {
namespace {

using collectives::Bytes;
using collectives::CallHeader;
using collectives::Communicator;
using collectives::ConstBytes;
using collectives::ReduceOp;
using transport::WaitLimit;
using TorchOp = c10d::ReduceOp::RedOpType;

const at::Tensor& the_one(const std::vector<at::Tensor>& tensors, const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "smddp: ", operation, " takes one tensor, got ",
                    tensors.size());
  check_tensor(tensors.front(), operation);
  return tensors.front();
}

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

/// Refuses here what can never be reduced, so that no rank waits for this one.
CallHeader reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  CallHeader call = header_of(tensor);
  call.op = operation_of(op);
  TORCH_CHECK_VALUE(!tensor.is_complex() || call.op <= ReduceOp::kAverage,
                    "smddp: complex tensors can be added and averaged only");
  try {
    collectives::check_reducible(call.type, call.op);
  } catch (const ConfigError& error) {
    C10_THROW_ERROR(TypeError, error.what());
  }
  return call;
}

/// `tensor`, times the factor of a premultiplied sum; contiguous.
at::Tensor input_of(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (static_cast<TorchOp>(op) != c10d::ReduceOp::PREMUL_SUM) return tensor.contiguous();
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(factor != nullptr, "smddp: a premultiplied sum without a factor");
  const at::Tensor product = factor->tensor_factor.defined() ? tensor.mul(factor->tensor_factor)
                                                             : tensor.mul(factor->double_factor);
  return product.to(tensor.scalar_type()).contiguous();
}

std::vector<Landing> landings_of(const std::vector<at::Tensor>& tensors) {
  std::vector<Landing> landings;
  for (const at::Tensor& tensor : tensors) landings.emplace_back(tensor, false);
  return landings;
}

std::vector<Bytes> bytes_of(const std::vector<Landing>& landings) {
  std::vector<Bytes> bytes;
  for (const Landing& landing : landings) bytes.push_back(bytes_out(landing.tensor()));
  return bytes;
}

std::vector<ConstBytes> bytes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<ConstBytes> bytes;
  for (const at::Tensor& tensor : tensors) bytes.push_back(bytes_in(tensor));
  return bytes;
}

void finish(const std::vector<Landing>& landings) {
  for (const Landing& landing : landings) landing.finish();
}

std::vector<at::Tensor> contiguous(const std::vector<at::Tensor>& tensors) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.contiguous());
  return result;
}

std::vector<at::Tensor> joined(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// A contiguous tensor's memory in parts of equal size.
template <typename Span>
std::vector<Span> equal_parts(Span whole, int count) {
  const size_t size = whole.size() / static_cast<size_t>(count);
  std::vector<Span> parts;
  for (size_t part = 0; part < static_cast<size_t>(count); ++part) {
    parts.push_back(whole.subspan(part * size, size));
  }
  return parts;
}

/// The memory of a tensor cut along its first dim; no splits means equal ones.
template <typename Span>
std::vector<Span> split_parts(const at::Tensor& tensor, Span whole,
                              const std::vector<int64_t>& splits, int count) {
  if (splits.empty()) {
    TORCH_CHECK_VALUE(tensor.dim() > 0 && tensor.size(0) % count == 0,
                      "smddp: all_to_all_single: the first dim of ", tensor.sizes(),
                      " does not divide by ", count, " ranks");
    return equal_parts(whole, count);
  }
  const int64_t total = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  TORCH_CHECK_VALUE(
      splits.size() == static_cast<size_t>(count) && tensor.dim() > 0 && total == tensor.size(0),
      "smddp: all_to_all_single: splits ", splits, " do not fit a tensor of ", tensor.sizes(),
      " and ", count, " ranks");
  const size_t row = total == 0 ? 0 : whole.size() / static_cast<size_t>(total);
  std::vector<Span> parts;
  size_t start = 0;
  for (const int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "smddp: all_to_all_single: a negative split");
    parts.push_back(whole.subspan(start, static_cast<size_t>(split) * row));
    start += static_cast<size_t>(split) * row;
  }
  return parts;
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

void check_whole(const at::Tensor& whole, const at::Tensor& part, int count,
                 const char* operation) {
  check_tensor(whole, operation);
  check_tensor(part, operation);
  TORCH_CHECK_VALUE(
      whole.scalar_type() == part.scalar_type() && whole.numel() == part.numel() * count,
      "smddp: ", operation, ": ", whole.scalar_type(), " ", whole.sizes(), " is not ", count,
      " times ", part.scalar_type(), " ", part.sizes());
}

}  // namespace

SmddpBackend::SmddpBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           std::chrono::milliseconds timeout,
                           const std::vector<int64_t>& global_ranks)
    : c10d::Backend(rank, size), process_(getpid()), timeout_(timeout) {
  std::vector<int> names(static_cast<size_t>(size));
  std::iota(names.begin(), names.end(), 0);
  for (size_t i = 0; global_ranks.size() == names.size() && i < names.size(); ++i) {
    names[i] = static_cast<int>(global_ranks[i]);
  }
  C10dStore keys(store);
  communicator_ = Communicator::connect(keys, rank, std::move(names), tuning_from_environment(),
                                        WaitLimit::after(timeout, "making a group"));
  thread_ = std::thread([this] { run_all(); });
  pthread_setname_np(thread_.native_handle(), "smddp");
}

SmddpBackend::~SmddpBackend() {
  if (getpid() != process_) {
    // A forked child has neither the thread nor a place in the group; nothing of it may end.
    if (thread_.joinable()) thread_.detach();
    static_cast<void>(communicator_.release());
    return;
  }
  stop(false);
}

c10::intrusive_ptr<c10d::Backend::Options> SmddpBackend::getBackendOptions() {
  const std::lock_guard lock(mutex_);
  return c10::make_intrusive<c10d::Backend::Options>("smddp", timeout_);
}

void SmddpBackend::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

uint64_t SmddpBackend::getSequenceNumberForGroup() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

c10d::ErrorType SmddpBackend::getError() {
  const std::lock_guard lock(mutex_);
  return failed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

SmddpBackend::WorkPtr SmddpBackend::start(c10d::OpType type, std::string operation,
                                          std::chrono::milliseconds timeout, bool async,
                                          Tensors results, Body body) {
  TORCH_CHECK(getpid() == process_, "smddp: ", operation,
              " was called in a forked process; make groups after the fork");
  std::unique_lock lock(mutex_);
  TORCH_CHECK(!stopping_, "smddp: ", operation, " was called after the group was shut down");
  if (timeout <= std::chrono::milliseconds::zero()) timeout = timeout_;
  Task task{.work = c10::make_intrusive<PendingWork>(rank_, type, calls_++, std::move(results)),
            .operation = std::move(operation),
            .timeout = timeout,
            .body = std::move(body)};
  c10::intrusive_ptr<PendingWork> work = task.work;
  if (async || busy_ || !queue_.empty()) {
    queue_.push_back(std::move(task));
    lock.unlock();
    changed_.notify_all();
    return work;
  }
  busy_ = true;
  lock.unlock();
  run(task);
  lock.lock();
  busy_ = false;
  const bool awaited = !queue_.empty() || stopping_;
  lock.unlock();
  if (awaited) changed_.notify_all();
  return work;
}

void SmddpBackend::run(const Task& task) {
  std::exception_ptr error;
  try {
    try {
      task.body(*communicator_, WaitLimit::after(task.timeout, task.operation));
    } catch (const Error& problem) {
      C10_THROW_ERROR(DistBackendError, std::string("smddp: ") + problem.what());
    }
  } catch (...) {
    error = std::current_exception();
    const std::lock_guard lock(mutex_);
    failed_ = true;
  }
  task.work->end(error);
}

void SmddpBackend::run_all() {
  std::unique_lock lock(mutex_);
  while (true) {
    // No deadline: an idle group waits for its next call or the end.
    changed_.wait(lock, [this] { return !busy_ && (!queue_.empty() || stopping_); });
    if (queue_.empty()) return;
    busy_ = true;
    {
      const Task task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      run(task);  // frees the tensors outside of the lock, too
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void SmddpBackend::stop(bool drain) {
  {
    std::unique_lock lock(mutex_);
    const auto idle = [this] { return queue_.empty() && !busy_; };
    if (communicator_ && !idle() && !(drain && changed_.wait_for(lock, timeout_, idle))) {
      communicator_->abort(fmt::format("rank {} has ended the group with collectives pending",
                                       communicator_->name(rank_)));
    }
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  communicator_.reset();
}

void SmddpBackend::abort() {
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (!communicator_) return;
  communicator_->abort(fmt::format("rank {} aborted the group", communicator_->name(rank_)));
}

void SmddpBackend::shutdown() {
  if (getpid() == process_) stop(true);
}

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
