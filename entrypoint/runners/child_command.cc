// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/child_command.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "entrypoint/process/spawn.h"
#include "entrypoint/runners/rank_exec.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr const char* kSavedFile = "environment";
constexpr const char* kHostFile = "host_environment";
constexpr const char* kHosts = "SM_HOSTS";

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

void set_entry(std::vector<std::string>& environment, const std::string& entry) {
  const std::string_view name = name_of(entry);
  const auto place = std::ranges::find_if(
      environment, [name](const std::string& other) { return name_of(other) == name; });
  if (place == environment.end()) {
    environment.push_back(entry);
  } else {
    *place = entry;
  }
}

// Entries end in a NUL, the one byte that none can hold.
std::string to_text(std::span<const std::string> entries) {
  std::string text;
  for (const std::string& entry : entries) text.append(entry).push_back('\0');
  return text;
}

std::vector<std::string> from_file(const std::filesystem::path& path) {
  return smp::split_terminated(smp::read_text(path), '\0');
}

bool belongs_to_session(std::string_view name) {
  constexpr std::string_view kNames[] = {"HOME",   "USER",  "LOGNAME", "SHELL", "MAIL",      "PWD",
                                         "OLDPWD", "SHLVL", "TERM",    "_",     "MOTD_SHOWN"};
  return name.starts_with("SSH_") || std::ranges::find(kNames, name) != std::end(kNames);
}

std::string program_name(Runner runner) {
  switch (runner) {
    case Runner::kMpi:
    case Runner::kSmddp:
      return "mpirun";
    case Runner::kTorchrun:
      return "torchrun";
    case Runner::kTrainingModule:
      return "the training module";
    case Runner::kProcess:
      break;
  }
  return "the user's script";
}

// mpirun forwards these. Outside of its time for that, while it starts or its ranks have ended well
// and it clears up, one would kill it; libevent gives back what was there before its own handlers.
std::vector<int> signals_for_ranks() { return {SIGUSR1, SIGUSR2, kUserSignal1OverMpi}; }

using opt_ml::Value;

constexpr std::array kLists = {"hosts", "distribution_hosts", "current_instance_group_hosts"};
constexpr std::array kVariables = {"SM_TRAINING_ENV", "SM_RESOURCE_CONFIG"};
constexpr const char* kOfUser = "hyperparameters";
constexpr const char* kGroupHosts = "SM_CURRENT_INSTANCE_GROUP_HOSTS";
constexpr const char* kNumber = "SM_CURRENT_HOST_RANK";

std::set<std::string> texts_of(std::string_view json) {
  const std::optional<Value> value = opt_ml::try_parse_json(json);
  std::set<std::string> texts;
  if (!value || value->list() == nullptr) return texts;
  for (const Value& one : *value->list()) {
    if (one.text() != nullptr) texts.insert(*one.text());
  }
  return texts;
}

Value::List without(const Value::List& hosts, const std::set<std::string>& lost) {
  Value::List left = hosts;
  std::erase_if(left, [&](const Value& one) { return one.text() && lost.contains(*one.text()); });
  return left;
}

/// `value` with fewer hosts in the lists that name some, however deep they lie.
Value without(const Value& value, const std::set<std::string>& lost) {
  if (const Value::List* list = value.list()) {
    Value::List result;
    for (const Value& one : *list) result.push_back(without(one, lost));
    return result;
  }
  if (value.object() == nullptr) return value;
  Value result = Value::Object{};
  for (const Value::Member& member : *value.object()) {
    if (member.key == kOfUser) {
      result.set(member.key, member.value);
      continue;
    }
    const bool names_hosts = std::ranges::find(kLists, member.key) != kLists.end();
    const bool is_list = names_hosts && member.value.list() != nullptr;
    result.set(member.key,
               is_list ? Value(without(*member.value.list(), lost)) : without(member.value, lost));
  }
  return result;
}

}  // namespace

void set_variable(std::vector<std::string>& environment, std::string_view name,
                  std::string_view value) {
  set_entry(environment, fmt::format("{}={}", name, value));
}

std::vector<std::string> planned_environment(const ProgramEnvironment& plan,
                                             std::vector<std::string> inherited) {
  std::erase_if(inherited, [&plan](const std::string& entry) {
    return std::ranges::find(plan.unset, name_of(entry)) != plan.unset.end();
  });
  for (const Variable& variable : plan.variables) {
    set_variable(inherited, variable.name, variable.value);
  }
  for (const Variable& variable : plan.host_variables) {
    set_variable(inherited, variable.name, variable.value);
  }
  // Output is streamed live; Python would keep 8 KiB back, as it writes to a pipe.
  if (value_of(inherited, "PYTHONUNBUFFERED").empty()) {
    set_variable(inherited, "PYTHONUNBUFFERED", "1");
  }
  return inherited;
}

void save_rank_environment(const std::filesystem::path& folder, const ProgramEnvironment& plan,
                           std::span<const std::string> planned) {
  std::vector<std::string> of_host;
  for (const Variable& variable : plan.host_variables) {
    of_host.push_back(fmt::format("{}={}", variable.name, variable.value));
  }
  smp::replace_text(folder / kSavedFile, to_text(planned), smp::kForOwner);
  smp::replace_text(folder / kHostFile, to_text(of_host), smp::kForOwner);
}

void leave_out_lost_hosts(std::vector<std::string>& environment, std::string_view before,
                          std::string_view now) {
  const std::set<std::string> left = texts_of(now);
  std::set<std::string> lost = texts_of(before);
  std::erase_if(lost, [&](const std::string& host) { return left.contains(host); });
  if (lost.empty()) return;
  for (const char* name : kVariables) {
    const auto value = opt_ml::try_parse_json(value_of(environment, name));
    if (value) set_variable(environment, name, opt_ml::to_json(without(*value, lost)));
  }
  const auto group = opt_ml::try_parse_json(value_of(environment, kGroupHosts));
  if (group && group->list() != nullptr) {
    set_variable(environment, kGroupHosts, opt_ml::to_json(Value(without(*group->list(), lost))));
  }
  const auto own = left.find(std::string(value_of(environment, "SM_CURRENT_HOST")));
  if (own != left.end()) {
    set_variable(environment, kNumber, std::to_string(std::distance(left.begin(), own)));
  }
}

std::vector<std::string> rank_environment(const std::filesystem::path& folder,
                                          std::vector<std::string> current) {
  if (folder.empty()) return current;
  std::vector<std::string> result = from_file(folder / kSavedFile);
  if (result.empty()) return current;
  const std::string hosts(value_of(result, kHosts));
  for (const std::string& entry : current) {
    if (!belongs_to_session(name_of(entry))) set_entry(result, entry);
  }
  for (const std::string& entry : from_file(folder / kHostFile)) {
    // A number of threads that came with mpirun's -x is the user's wish.
    const bool user_chose =
        name_of(entry) == "OMP_NUM_THREADS" && !value_of(current, "OMP_NUM_THREADS").empty();
    if (!user_chose) set_entry(result, entry);
  }
  leave_out_lost_hosts(result, hosts, value_of(result, kHosts));
  const std::string secret = smp::read_text(folder / kSecretFile);
  if (!secret.empty()) set_variable(result, smp::kSecretVariable, secret);
  return result;
}

Command command_for(const JobOutline& outline, const JobSettings& settings,
                    const std::vector<std::string>& argv, std::vector<std::string> environment) {
  const Runner runner = outline.runner.kind;
  const bool is_mpirun = outline.runner.runs_mpirun();
  return Command{.name = program_name(runner),
                 .argv = argv,
                 .environment = std::move(environment),
                 .working_directory = outline.code.folder,
                 .output = Output::kStream,
                 .on_stop = stop_steps(runner, settings.stop_after),
                 // torchrun would die of them
                 .forwards_user_signals = runner != Runner::kTorchrun,
                 .sigusr1_as = is_mpirun ? kUserSignal1OverMpi : SIGUSR1,
                 .ignored_signals = is_mpirun ? signals_for_ranks() : std::vector<int>{}};
}

std::vector<StopStep> stop_steps(Runner runner, std::chrono::milliseconds stop_after) {
  constexpr std::chrono::milliseconds kForStarter{5000};
  using std::chrono::milliseconds;
  if (runner == Runner::kProcess || runner == Runner::kTrainingModule) {
    return {{.after = milliseconds(0), .signal = StopStep::kForward},
            {.after = stop_after, .signal = SIGKILL}};
  }
  const milliseconds term = std::max(stop_after / 2, stop_after - kForStarter);
  std::vector<StopStep> steps = {{.after = term, .signal = SIGTERM},
                                 {.after = stop_after, .signal = SIGKILL}};
  if (runner == Runner::kTorchrun) return steps;
  // mpirun forwards to the ranks that it knows of: while they start, the stop would be lost. A
  // shim passes one stop only, so saying it again does no harm.
  std::vector<StopStep> stops = {{.after = milliseconds(0), .signal = SIGUSR1}};
  for (milliseconds after(500); after < term; after *= 2) {
    stops.push_back({.after = after, .signal = SIGUSR1});
  }
  steps.insert(steps.begin(), stops.begin(), stops.end());
  return steps;
}

}  // namespace entrypoint
