// SPDX-License-Identifier: Apache-2.0
#include "smp/session.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "smp/groups.h"
#include "smp/version.h"
#include <ATen/Context.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/version.h>

#include "smp_runtime/api/session_core.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/session/c10d_store.h"
#include "smp_runtime/session/groups.h"
#include "smp_runtime/smddp/backend/smddp_backend.h"
#include "smp_runtime/topology/setting.h"
#include "smp_runtime/transport/fabric/fabric_library.h"

namespace smp {
namespace {

using topology::Group;
using topology::ParallelConfig;

/// For programs in C++.
const char* words_of(Advice advice) {
  switch (advice) {
    case Advice::kOutsideOfStep:
      return "; call it inside the body of a smp::Step";
    case Advice::kForeignBackward:
      return "; call DistributedModel::backward(loss) in place of loss.backward()";
    case Advice::kFewerBatches:
      return "";
    case Advice::kShardedValue:
      return "; elsewhere save the model with smp::save_checkpoint, and read the file";
    case Advice::kRemoteValue:
      return ": call the unit that has it, or give both the same partition";
    case Advice::kLostWrite:
      return ": use smp::resume_from_checkpoint";
  }
  return "";
}

int sessions = 0;  // of this process so far: it sets their keys in the store apart

/// Refuses settings that only Python's side has today. Silently leaving them out would train
/// something else.
void refuse_missing(const ParallelConfig& config) {
  const std::array<std::pair<const char*, bool>, 6> missing{{
      {"tensor_parallel_degree", config.tensor_parallel_degree > 1},
      {"fp16_params", config.fp16_params},
      {"checkpoint_on_signal", config.checkpoint_on_signal},
      {"load_partition", config.load_partition},
      {"partition_file", config.partition_file.has_value()},
      {"delayed_parameter_initialization", config.delayed_parameter_initialization},
  }};
  for (const auto& [name, is_set] : missing) {
    if (!is_set) continue;
    throw ConfigError(
        "mp_parameters: {} is not available to C++ programs; leave it out, or train with the "
        "Python package",
        name);
  }
}

session::SessionRequest request_for(std::string_view mp_parameters) {
  check_torch();
  transport::set_fabric_defaults();
  const Variables variables = read_variables();
  cluster::RuntimeOptions options = cluster::make_runtime_options(variables);
  ParallelConfig config = topology::make_parallel_config(
      topology::parse_settings(options.parameters, "SM_HP_MP_PARAMETERS"),
      topology::parse_settings(mp_parameters, "smp::Session::from_settings"));
  refuse_missing(config);
  if (options.self_checked_steps > 0) {
    throw ConfigError(
        "SMP_SELF_CHECK is not available to C++ programs; unset it, or check the model in Python");
  }
  return {.config = std::move(config),
          .options = std::move(options),
          .variables = variables,
          .number = sessions++};
}

/// Makes groups that c10d knows by their names, of any backend of ours: "smddp"; the headers of
/// Gloo's do not come with torch. `rank` is this rank of the job, `store` the job's.
session::MakeGroup group_maker(session::StorePtr store, int rank) {
  return [store = std::move(store), rank](const session::GroupRequest& request) {
    SMP_CHECK(request.backend == "smddp", "no backend {} without Python", request.backend);
    const auto found = std::ranges::find(request.ranks, rank);
    SMP_CHECK(found != request.ranks.end(), "rank {} makes a group of others", rank);
    const int mine = static_cast<int>(found - request.ranks.begin());
    const int size = static_cast<int>(request.ranks.size());
    const std::vector<std::int64_t> global(request.ranks.begin(), request.ranks.end());
    const auto own = c10::make_intrusive<c10d::PrefixStore>(request.name, store);
    auto backend =
        c10::make_intrusive<smddp::SmddpBackend>(own, mine, size, request.timeout, global);
    auto group = c10::make_intrusive<c10d::ProcessGroup>(own, mine, size);
    constexpr auto kOurs = c10d::ProcessGroup::BackendType::CUSTOM;
    group->setDefaultBackend(kOurs);
    for (const c10::DeviceType device : {c10::DeviceType::CPU, c10::DeviceType::CUDA}) {
      group->setBackend(device, kOurs, c10::intrusive_ptr<c10d::Backend>(backend));
    }
    group->setGroupName(request.name);
    group->setGroupDesc(request.description);
    c10d::register_process_group(request.name, group);
    return group;
  };
}

Group kind_of(CommGroup group) {
  switch (group) {
    case CommGroup::kWorld:
      return Group::kWorld;
    case CommGroup::kPp:
      return Group::kPp;
    case CommGroup::kDp:
      return Group::kDp;
  }
  throw ConfigError("smp::CommGroup has no {}", static_cast<int>(group));
}

}  // namespace

Session::Core::Core(std::string_view mp_parameters)
    : session_(request_for(mp_parameters)), saves_(session_, session_.options().saves_under_way) {
  session_.open_groups({.tensors = "smddp", .cpu = "smddp", .by_host = "smddp"},
                       group_maker(session_.world_store(), session_.ranks().rank));
  reports_.emplace(session_, metrics::JobFacts{.device = at::hasCUDA() ? "CUDA" : "CPU",
                                               .library = version(),
                                               .torch = TORCH_VERSION});
}

Session::Core::~Core() {
  const bool fails = std::uncaught_exceptions() > 0;
  try {
    if (!fails) saves_.wait();
  } catch (const std::exception& error) {
    SMP_LOG(error, "{}", error.what());
  }
  saves_.close();
  if (!fails) reports_->await_last_loss();
  reports_.reset();  // tells what is left
  try {
    session_.leave(fails, /*serves=*/true);
  } catch (const std::exception& error) {
    SMP_LOG(warning, "{}", error.what());
  }
  c10d::unregister_all_process_groups();  // which would outlive the session's store
}

checkpoint::MemoryCheckpoints* Session::Core::memory_of(const std::filesystem::path& folder) {
  if (session_.options().checkpoint_memory == 0) return nullptr;
  return &memory_.try_emplace(std::filesystem::absolute(folder), session_, folder).first->second;
}

Session Session::from_environment() { return from_settings({}); }

Session Session::from_settings(std::string_view mp_parameters) {
  set_advice_words(&words_of);
  return Session(std::make_shared<Core>(mp_parameters));
}

Session::Session(std::shared_ptr<Core> core) : core_(std::move(core)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

int Session::rank() const { return core_->session().ranks().rank; }
int Session::size() const { return core_->session().ranks().size; }
int Session::local_rank() const { return core_->session().ranks().local_rank.value_or(0); }
int Session::pp_rank() const { return core_->index(Group::kPp); }
int Session::pp_size() const { return core_->count(Group::kPp); }
int Session::dp_rank() const { return core_->index(Group::kDp); }
int Session::dp_size() const { return core_->count(Group::kDp); }
int Session::microbatches() const { return static_cast<int>(core_->config().microbatches); }

void Session::progress(std::int64_t steps) {
  if (steps < 1) {
    throw ConfigError(
        "smp::Session::progress got {}; expected how many steps the program makes, at least 1",
        steps);
  }
  core_->reports().set_total(steps);
}

void Session::barrier() {
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  core_->session().barriers().all("smp::Session::barrier", "barrier", all);
}

std::vector<int> ranks_of(const Session& session, CommGroup group) {
  return session.core()->session().groups().ranks(kind_of(group));
}

c10::intrusive_ptr<c10d::ProcessGroup> process_group(Session& session, CommGroup group) {
  return session.core()->session().groups().user_group(kind_of(group));
}

}  // namespace smp
