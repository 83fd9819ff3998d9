// SPDX-License-Identifier: Apache-2.0
#include "smp/model.h"

#include <exception>
#include <sstream>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/program/chain_placement.h"
#include "smp_runtime/program/model_core.h"
#include "smp_runtime/replicas/broadcast.h"
#include "smp_runtime/session/c10d_store.h"
#include "smp_runtime/transport/channel/process_transport.h"
#include "smp_runtime/transport/error_text.h"

namespace smp {
namespace {

using topology::Group;

constexpr const char* kWentBack = "backward";

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return transport::error_text(exception);
  }
}

std::vector<Microbatch> split(const std::vector<at::Tensor>& batch, int count) {
  std::vector<Microbatch> parts(static_cast<std::size_t>(count));
  for (std::size_t index = 0; index < batch.size(); ++index) {
    const at::Tensor& tensor = batch[index];
    if (!tensor.defined() || tensor.dim() == 0 || tensor.size(0) % count != 0) {
      std::ostringstream shape;
      if (tensor.defined()) shape << tensor.sizes();
      throw ConfigError(
          "tensor {} of the batch, of shape {}, does not divide into microbatches={} along its "
          "first dim; change the batch size, or drop the last batch",
          index, tensor.defined() ? shape.str() : "none", count);
    }
    const std::int64_t rows = tensor.size(0) / count;
    for (int part = 0; part < count; ++part) {
      parts[static_cast<std::size_t>(part)].tensors.push_back(tensor.narrow(0, part * rows, rows));
    }
  }
  for (int part = 0; part < count; ++part) parts[static_cast<std::size_t>(part)].index = part;
  return parts;
}

std::string line_of(std::istringstream& text) {
  std::string line;
  std::getline(text, line);
  return line.empty() ? "nothing" : line;
}

}  // namespace

DistributedModel::Core::Core(std::shared_ptr<Session::Core> session, std::vector<Unit> units,
                             const Options& options)
    : session_(std::move(session)),
      units_(std::move(units)),
      partition_(session_->index(Group::kPp)),
      microbatches_(static_cast<int>(session_->config().microbatches)) {
  place(options);
  compare_units();
  align_replicas(options);
  start_engine();
}

DistributedModel::Core::~Core() = default;

void DistributedModel::Core::place(const Options& options) {
  assignment_ = program::place_chain(units_, options.partition, session_->config());
  for (std::size_t index = 0; index < units_.size(); ++index) {
    const int owner = assignment_.at(units_[index].name);
    if (segments_.empty() || segments_.back().owner != owner) {
      segments_.push_back({.owner = owner, .first = index, .end = index});
    }
    segments_.back().end = index + 1;
    if (owner != partition_) continue;
    for (const at::Tensor& parameter : units_[index].parameters) {
      const bool is_known = std::ranges::any_of(
          parameters_, [&](const at::Tensor& known) { return known.is_same(parameter); });
      if (!is_known) parameters_.push_back(parameter);
    }
    buffers_.insert(buffers_.end(), units_[index].buffers.begin(), units_[index].buffers.end());
  }
}

/// Ranks with different models would wait for each other for ever, or train nonsense.
void DistributedModel::Core::compare_units() {
  session::Session& session = session_->session();
  const std::string key = fmt::format("model/{}", session_->count_model());
  const std::string mine = program::chain_text(units_) + assignment_.to_json();
  if (session.ranks().rank == 0) {
    session.store()->set(key, mine);
    return;
  }
  const std::string first =
      session::asking_store(session.ranks().rank, [&] { return session.store()->get_to_str(key); });
  if (first == mine) return;
  std::istringstream here(mine);
  std::istringstream there(first);
  for (int unit = 0;; ++unit) {
    const std::string ours = line_of(here);
    const std::string theirs = line_of(there);
    if (ours == theirs) continue;
    throw ConfigError(
        "rank {} and rank 0 make different models: unit {} is {} here and {} there; make the same "
        "units on all ranks",
        session.ranks().rank, unit, ours, theirs);
  }
}

void DistributedModel::Core::align_replicas(const Options& options) {
  if (!session_->replicates() || parameters_.empty()) return;
  session::Session& session = session_->session();
  const auto& watch = session.barriers().watch();
  const std::string group = session.groups().internal_group(Group::kDp)->getGroupName();
  std::vector<at::Tensor> values = buffers_;
  values.insert(values.end(), parameters_.begin(), parameters_.end());
  for (at::Tensor& value : values) value = value.detach();
  replicas::broadcast_tensors(group, values, 0, /*may_join=*/false, watch.get());
  const auto& config = session_->config();
  reducer_ = std::make_unique<replicas::GradientReducer>(
      replicas::GradientReducer::Options{
          .group_name = group,
          .bucket_bytes = options.bucket_bytes,
          // A fixed order of work leaves no room for an order by readiness.
          .overlap = config.overlapping_allreduce && !config.deterministic_server,
          .may_join = false,
          .watch = watch,
          .ranks = session.groups().ranks(Group::kDp)},
      parameters_);
}

void DistributedModel::Core::start_engine() {
  session::Session& session = session_->session();
  const auto& config = session_->config();
  const auto watch = session.barriers().watch();
  const int rank = session.ranks().rank;
  pipeline::EngineOptions options{
      .server = {.schedule = pipeline::parse_schedule(config.pipeline),
                 .active_microbatches = config.active_microbatches,
                 .deterministic = config.deterministic_server,
                 .timeout = session.options().timeout,
                 .name = fmt::format("rank {}", rank),
                 .check_interrupt =
                     [watch] {
                       if (watch) watch->check();
                     },
                 .target_name =
                     [this](int64_t segment) {
                       return units_[segments_.at(static_cast<std::size_t>(segment)).first].name;
                     },
                 .timeline = {.recorder = session.recorder(),
                              .ranks = session.groups().ranks(Group::kPp)}},
      .run_module =
          [this](int64_t segment, pipeline::TensorTree arguments, bool /*passes_on*/) {
            at::Tensor result = run_segment(segments_.at(static_cast<std::size_t>(segment)),
                                            std::move(arguments.tensors.at(0)));
            return pipeline::TensorTree{.tensors = {std::move(result)}};
          },
      .describe = text_of};
  std::unique_ptr<transport::Transport> transport;
  if (session_->count(Group::kPp) == 1) {
    alone_ = std::make_unique<transport::LoopbackNetwork>(1);
    transport = alone_->endpoint(0);
  } else {
    session::C10dStore store(session.groups().new_store(Group::kPp, "pipeline"));
    transport = std::make_unique<transport::ProcessTransport>(
        store, session_->index(Group::kPp), session_->count(Group::kPp),
        transport::ProcessTransport::Options{.network = transport::read_network(),
                                             .timeout = session.options().timeout});
  }
  engine_ = std::make_unique<pipeline::Engine>(std::move(transport), std::move(options));
  engine_->track_parameters(parameters_);
  if (rank == 0 && session_->count(Group::kPp) > 1) {
    for (const Unit& unit : units_) {
      SMP_LOG(info, "unit {} is on partition {}", unit.name, assignment_.at(unit.name));
    }
  }
}

int DistributedModel::Core::partition_of(std::string_view unit) const {
  const auto found = assignment_.partition_of.find(std::string(unit));
  if (unit.empty() || found == assignment_.partition_of.end()) {
    throw ConfigError("DistributedModel: no unit is named \"{}\"", unit);
  }
  return found->second;
}

at::Tensor DistributedModel::Core::run_segment(const Segment& segment, at::Tensor value) const {
  for (std::size_t unit = segment.first; unit < segment.end; ++unit) {
    value = units_[unit].forward(value);
    if (!value.defined()) {
      throw UserCodeError("unit \"{}\" returned no tensor", units_[unit].name);
    }
  }
  return value;
}

at::Tensor DistributedModel::Core::forward(const at::Tensor& input) {
  if (engine_->microbatch() < 0) {
    throw UserCodeError(
        "DistributedModel::forward was called outside a step; call it in the body that smp::step() "
        "is given");
  }
  at::Tensor value = input;
  for (std::size_t at = 0; at < segments_.size();) {
    if (segments_[at].owner == partition_) {
      value = run_segment(segments_[at++], std::move(value));
      continue;
    }
    pipeline::Route route;  // one call through all partitions up to the next part that is here
    for (; at < segments_.size() && segments_[at].owner != partition_; ++at) {
      route.push_back({.owner = segments_[at].owner, .target = static_cast<int64_t>(at)});
    }
    value = engine_->call(route, {.tensors = {std::move(value)}}).tensors.at(0);
  }
  return value;
}

void DistributedModel::Core::backward(const at::Tensor& loss) {
  engine_->backward({loss}, {at::Tensor()}, 1.0 / microbatches_);
}

StepOutput DistributedModel::Core::drive(const Step::Body& body,
                                         const std::vector<at::Tensor>& batch, bool& went_back) {
  std::vector<Microbatch> parts;
  StepOutput output;
  output.microbatches.resize(static_cast<std::size_t>(microbatches_));
  // Steps of one kind make the same calls.
  const std::string kind =
      fmt::format("step, gradients {}, {}", at::GradMode::is_enabled(), microbatches_);
  engine_->drive(
      kind, microbatches_,
      [&](int64_t microbatch) {
        // In here, so that other ranks learn of a batch that does not divide.
        if (parts.empty()) parts = split(batch, microbatches_);
        const auto index = static_cast<std::size_t>(microbatch);
        const at::Tensor result = body(parts[index]);
        if (!result.defined()) {
          throw UserCodeError("the body of the step returned no tensor; return its loss");
        }
        output.microbatches[index] = result.detach();
      },
      [&] {
        went_back = engine_->take_backwards() > 0;
        return pipeline::TensorTree{.definition = went_back ? kWentBack : "",
                                    .tensors = output.microbatches};
      });
  return output;
}

StepOutput DistributedModel::Core::serve(bool& went_back) {
  pipeline::TensorTree result = engine_->serve();
  engine_->take_backwards();
  went_back = result.definition == kWentBack;
  return {.microbatches = std::move(result.tensors)};
}

StepOutput DistributedModel::Core::run(const Step::Body& body,
                                       const std::vector<at::Tensor>& batch) {
  if (reducer_) reducer_->begin_step(at::GradMode::is_enabled());
  bool went_back = false;
  StepOutput output = partition_ == 0 ? drive(body, batch, went_back) : serve(went_back);
  if (reducer_ && went_back) {
    session::Session& session = session_->session();
    const session::WaitingCall waiting(session.barriers().watch(), "the averaging of gradients",
                                       "averaging", session.groups().ranks(Group::kDp));
    reducer_->average();
  }
  if (const auto& recorder = session_->session().recorder()) {
    recorder->describe_step(batch.empty() ? 0 : batch.front().size(0), went_back);
  }
  return output;
}

at::Tensor StepOutput::mean() const { return at::stack(microbatches).mean(0); }

DistributedModel::DistributedModel(Session& session, std::vector<Unit> chain, Options options)
    : core_(std::make_shared<Core>(session.core(), std::move(chain), options)) {}
DistributedModel::DistributedModel(DistributedModel&&) noexcept = default;
DistributedModel& DistributedModel::operator=(DistributedModel&&) noexcept = default;
DistributedModel::~DistributedModel() = default;

at::Tensor DistributedModel::forward(const at::Tensor& input) { return core_->forward(input); }
void DistributedModel::backward(const at::Tensor& loss) { core_->backward(loss); }
const std::vector<at::Tensor>& DistributedModel::parameters() const { return core_->parameters(); }
int DistributedModel::partition_of(std::string_view unit) const {
  return core_->partition_of(unit);
}

Step::Step(const DistributedModel& model, Body body)
    : model_(model.core()), body_(std::move(body)) {}

StepOutput Step::operator()(const std::vector<at::Tensor>& batch) {
  return model_->run(body_, batch);
}

}  // namespace smp
