// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/smddp_backend.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/host.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/named_thread.h"
#include "smp_runtime/smddp/backend/pending_work.h"
#include "smp_runtime/smddp/backend/tensor_arguments.h"
#include "smp_runtime/transport/host_identity.h"
#include "smp_runtime/transport/meeting.h"
#include "smp_runtime/transport/nccl/event_wait.h"

namespace smp::smddp {
namespace {

using collectives::Communicator;
using transport::WaitLimit;

/// The stores that torch.distributed opens by itself have no codes.
c10::intrusive_ptr<c10d::Store> with_codes(const c10::intrusive_ptr<c10d::Store>& store) {
  const std::optional<JobSecret> secret = JobSecret::given(read_variables());
  return secret ? session::authenticated(store, *secret) : store;
}

/// Throws ConfigError for one that lets nobody come.
std::chrono::milliseconds checked(std::chrono::milliseconds timeout) {
  if (timeout <= timeout.zero()) {
    throw ConfigError(
        "the timeout of a group is {} ms, which lets nobody come; give one above zero, and in "
        "place of one without an end, such as timedelta.max, some years: torch counts in 64 bits, "
        "where longer ones come out below zero",
        timeout.count());
  }
  return std::min(timeout, transport::kLongestTimeout);
}

std::vector<int> names_of(int size, const std::vector<int64_t>& global_ranks) {
  std::vector<int> names(static_cast<size_t>(size));
  std::iota(names.begin(), names.end(), 0);
  for (size_t i = 0; global_ranks.size() == names.size() && i < names.size(); ++i) {
    names[i] = static_cast<int>(global_ranks[i]);
  }
  return names;
}

/// Bytes to each other rank of `size`, by ring arithmetic: of a gather's input all of it, of other
/// inputs a rank's share, and of sums that share twice.
int64_t sent_to_each(c10d::OpType type, const std::vector<at::Tensor>& inputs, int size) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : inputs) bytes += static_cast<int64_t>(tensor.nbytes());
  switch (type) {
    case c10d::OpType::ALLGATHER:
    case c10d::OpType::_ALLGATHER_BASE:
    case c10d::OpType::ALLGATHER_COALESCED:
      return bytes;
    case c10d::OpType::ALLREDUCE:
    case c10d::OpType::ALLREDUCE_COALESCED:
      return 2 * bytes / size;
    default:
      return bytes / size;
  }
}

/// `FOLDER/smddp-RANK-GROUP.jsonl`, where groups count within the process.
std::unique_ptr<record::TrafficRecord> make_traffic_record(const std::string& folder, int rank) {
  static std::atomic<int> groups{0};
  return std::make_unique<record::TrafficRecord>(
      fmt::format("{}/smddp-{}-{}.jsonl", folder, rank, groups++), rank, host_name());
}

}  // namespace

SmddpBackend::SmddpBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           std::chrono::milliseconds timeout,
                           const std::vector<int64_t>& global_ranks, EndOf end_of)
    : c10d::Backend(rank, size),
      store_(with_codes(store)),
      keys_(store_),
      process_(getpid()),
      names_(names_of(size, global_ranks)),
      timeout_(timeout) {
  std::string host;
  try {
    timeout_ = checked(timeout);
    options_ = make_options(read_variables());
    host = transport::host_identity();
  } catch (const Error& error) {
    transport::Meeting::decline(keys_, {.rank = rank, .names = names_, .host = host, .end_of = {}},
                                error.what());
    throw;
  }
  auto limit = WaitLimit::after(timeout_, "making a group");
  limit.look_around = signal_handling();
  communicator_ = std::make_unique<Communicator>(keys_, rank, names_, host, options_.tuning,
                                                 options_.network, limit, std::move(end_of));
  if (rank == 0) {
    const std::string provider = communicator_->provider();
    SMP_LOG(debug,
            "smddp: {} ranks on {} host(s): shared memory inside a host{}; calls of up to {} bytes "
            "go with the headers",
            size, communicator_->hosts(),
            provider.empty() ? "" : fmt::format(", libfabric's {} between hosts", provider),
            options_.tuning.small_bytes);
  }
  if (!options_.record_folder.empty() && size > 1) {
    traffic_ = make_traffic_record(options_.record_folder, names_[static_cast<size_t>(rank)]);
  }
  thread_ = named_thread("smddp", [this] { run_all(); });
}

SmddpBackend::~SmddpBackend() {
  if (getpid() != process_) {
    // A forked child has neither the thread nor a place in the group; nothing of it may end.
    if (thread_.joinable()) thread_.detach();
    static_cast<void>(communicator_.release());
    static_cast<void>(traffic_.release());
    static_cast<void>(pairs_.release());
    static_cast<void>(gpus_.release());
    return;
  }
  stop(std::chrono::milliseconds::zero());
}

c10::intrusive_ptr<c10d::Backend::Options> SmddpBackend::getBackendOptions() {
  const std::lock_guard lock(mutex_);
  return c10::make_intrusive<c10d::Backend::Options>("smddp", timeout_.load());
}

void SmddpBackend::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  try {
    timeout_ = checked(timeout);
  } catch (const ConfigError& error) {
    TORCH_CHECK_VALUE(false, "smddp: ", error.what());
  }
}

std::string SmddpBackend::end_of(int global_rank) {
  const auto found = std::ranges::find(names_, global_rank);
  const std::lock_guard lock(mutex_);
  if (found == names_.end() || !communicator_) return {};
  return communicator_->end_of(static_cast<int>(found - names_.begin()));
}

uint64_t SmddpBackend::getSequenceNumberForGroup() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

c10d::ErrorType SmddpBackend::getError() {
  const std::lock_guard lock(mutex_);
  return failed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void SmddpBackend::check_caller(const std::string& operation) const {
  TORCH_CHECK(getpid() == process_, "smddp: ", operation,
              " was called in a forked process; make groups after the fork");
  const std::string reason = callbacks_.why_here();
  if (reason.empty()) return;
  C10_THROW_ERROR(DistBackendError,
                  fmt::format("smddp: {} was called in a callback of the group, which runs in the "
                              "group's own thread, since {}; or call it after wait()",
                              operation, reason));
}

SmddpBackend::WorkPtr SmddpBackend::start(const DeviceScope& scope, Call call, Tensors results,
                                          Body body) {
  check_caller(call.operation);
  std::unique_lock lock(mutex_);
  if (busy_ && runner_ == std::this_thread::get_id()) {
    C10_THROW_ERROR(DistBackendError,
                    fmt::format("smddp: {} was called by the handler of a signal that came while "
                                "this thread waits in another call of the group, which comes "
                                "first; have the handler set a flag and look at it after the call",
                                call.operation));
  }
  TORCH_CHECK(!stopping_, "smddp: ", call.operation, " was called after the group was shut down");
  if (calls_ == 0) caller_ = std::this_thread::get_id();
  if (caller_ != std::this_thread::get_id()) communicator_->note_several_threads();
  if (traffic_) traffic_->sent(names_, sent_to_each(call.type, call.inputs, size_));
  const PendingWork::Call shown{.type = call.type,
                                .sequence = calls_++,
                                .title = "smddp:" + call.operation,
                                .inputs = std::move(call.inputs),
                                .between_all = true};
  Task task{.work = c10::make_intrusive<PendingWork>(rank_, shown, std::move(results), scope.up()),
            .operation = std::move(call.operation),
            .timeout = call.timeout < call.timeout.zero() ? timeout_.load() : call.timeout,
            .body = std::move(body),
            .copied = scope.copied(),
            .told_apart = call.async || busy_ || !queue_.empty()};
  c10::intrusive_ptr<PendingWork> work = task.work;
  if (coalesced_) coalesced_->push_back(work);
  if (task.told_apart) {
    queue_.push_back(std::move(task));
    lock.unlock();
    changed_.notify_all();
    return work;
  }
  busy_ = computes_ = true;
  runner_ = std::this_thread::get_id();
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
    auto limit = WaitLimit::after(task.timeout, task.operation);
    limit.look_around = signal_handling();
    transport::await(task.copied, limit, [this] { communicator_->throw_if_broken(); });
    const c10::OptionalStreamGuard writing(task.work->writes_on());
    task.body(*communicator_, limit);
  } catch (...) {
    error = as_torch_error(std::current_exception());
  }
  {
    // Before anybody learns of the end, who may end the group then: nothing is pending.
    const std::lock_guard lock(mutex_);
    computes_ = false;
    failed_ |= error != nullptr;
  }
  changed_.notify_all();
  task.work->end(error, task.told_apart ? &callbacks_ : nullptr);
}

void SmddpBackend::run_all() {
  std::unique_lock lock(mutex_);
  while (true) {
    // No deadline: an idle group waits for its next call or the end.
    changed_.wait(lock, [this] { return !busy_ && (!queue_.empty() || stopping_); });
    if (queue_.empty()) return;
    busy_ = computes_ = true;
    runner_ = std::this_thread::get_id();
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

void SmddpBackend::stop(std::chrono::milliseconds patience) {
  {
    std::unique_lock lock(mutex_);
    const auto idle = [this] { return queue_.empty() && !computes_; };
    if (communicator_ && !idle() && !changed_.wait_for(lock, patience, idle)) {
      communicator_->abort(fmt::format("rank {} has ended the group with collectives pending",
                                       communicator_->name(rank_)));
    }
    stopping_ = true;
    if (traffic_) traffic_->flush();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::unique_ptr<GpuGroup> gpus;
  std::unique_ptr<PointToPoint> pairs;
  std::unique_ptr<Communicator> communicator;
  {
    const std::lock_guard lock(mutex_);
    gpus = std::move(gpus_);
    pairs = std::move(pairs_);
    communicator = std::move(communicator_);
  }
  pairs.reset();  // it asks the communicator
  gpus.reset();   // likewise
  if (!communicator) return;
  communicator->leave(WaitLimit::after(leave_limit(), "leaving"));
}

std::chrono::milliseconds SmddpBackend::leave_limit() const {
  return std::min(timeout_.load(), Communicator::kLeaveLimit);
}

void SmddpBackend::leave(bool failed) {
  if (getpid() == process_) stop(failed ? std::chrono::milliseconds::zero() : leave_limit());
}

void SmddpBackend::abort() {
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (!communicator_) return;
  communicator_->abort(fmt::format("rank {} aborted the group", communicator_->name(rank_)));
}

void SmddpBackend::shutdown() {
  if (getpid() == process_) stop(timeout_.load());
}

void SmddpBackend::startCoalescing() {
  const std::lock_guard lock(mutex_);
  coalesced_.emplace();
}

SmddpBackend::WorkPtr SmddpBackend::endCoalescing() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(coalesced_.has_value(), "smddp: endCoalescing without startCoalescing");
  std::vector<WorkPtr> works = std::move(*coalesced_);
  coalesced_.reset();
  return c10::make_intrusive<JoinedWork>(std::move(works));
}

c10::intrusive_ptr<c10d::Backend> SmddpBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& options) {
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  if (store == split_store_) {
    if (auto made = split_group_.lock()) return made;
  }
  std::vector<int64_t> global_ranks;
  for (const int rank : ranks) global_ranks.push_back(communicator_->name(rank));
  const c10::intrusive_ptr<c10d::Backend> made = c10::make_intrusive<SmddpBackend>(
      store, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()),
      options ? options->timeout : timeout_.load(), global_ranks,
      [this](int rank) { return end_of(rank); });
  split_store_ = store;
  split_group_ = c10::weak_intrusive_ptr<c10d::Backend>(made);
  return made;
}

}  // namespace smp::smddp
