// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/plan_report.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "entrypoint/config/shell_text.h"
#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/value.h"

namespace entrypoint {
namespace {

using opt_ml::Value;

constexpr int kIndent = 2;

std::string_view name_of(Runner runner) {
  switch (runner) {
    case Runner::kMpi:
      return "mpi";
    case Runner::kSmddp:
      return "smddp";
    case Runner::kTorchrun:
      return "torchrun";
    case Runner::kTrainingModule:
      return "module";
    case Runner::kProcess:
      break;
  }
  return "process";
}

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kMaster:
      return "master";
    case Role::kWorker:
      return "worker";
    case Role::kAlone:
      break;
  }
  return "alone";
}

std::string_view name_of(EntryPointKind kind) {
  switch (kind) {
    case EntryPointKind::kNone:
      return "none";
    case EntryPointKind::kPackage:
      return "package";
    case EntryPointKind::kModule:
      return "module";
    case EntryPointKind::kCommand:
      return "command";
    case EntryPointKind::kExecutable:
      return "executable";
    case EntryPointKind::kProgram:
      break;
  }
  return "program";
}

std::string code_words(const CodeSource& code) {
  if (!code.is_fetched()) return "as it is in the directory";
  return fmt::format("fetched from {}{}; a plan fetches nothing", code.location,
                     code.over_existing ? ", over what is there" : "");
}

Value code_value(const CodeSource& code) {
  Value result = Value::Object{};
  result.set("fetched", code.is_fetched());
  result.set("location", code.location);
  result.set("over_existing", code.over_existing);
  return result;
}

std::string partition_words(const PartitionOutlook& partition) {
  const std::string said = partition.summary.empty() ? "" : ": " + partition.summary;
  return partition.is_loaded
             ? fmt::format("from {}{}", partition.file.string(), said)
             : fmt::format("{}, which the first step writes anew{}", partition.file.string(), said);
}

Value partition_value(const std::optional<PartitionOutlook>& partition) {
  if (!partition) return {};
  Value result = Value::Object{};
  result.set("file", partition->file.string());
  result.set("loaded", partition->is_loaded);
  result.set("summary", partition->summary);
  return result;
}

class Text {
 public:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  void list(std::string_view title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    line("\n{}:", title);
    for (const std::string& entry : lines) line("  {}", entry);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void add_ranks(Text& text, const std::vector<RankPlace>& ranks) {
  if (ranks.empty()) return;
  std::string axes;
  for (const auto& [axis, number] : ranks.front().grid) axes += fmt::format("  {:>3}", axis);
  text.line("\nRanks:");
  text.line("  {:>5}  {:>5}{}  host", "rank", "local", axes);
  for (const RankPlace& place : ranks) {
    std::string numbers;
    for (const auto& [axis, number] : place.grid) {
      numbers += fmt::format("  {:>{}}", number, std::max<std::size_t>(axis.size(), 3));
    }
    text.line("  {:>5}  {:>5}{}  {}", place.rank, place.local_rank, numbers, place.host);
  }
}

/// Each host once, in the order of the ranks.
std::vector<std::string> hosts_of(const std::vector<int>& ranks,
                                  const std::vector<RankPlace>& places) {
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    const std::string& host = places[static_cast<std::size_t>(rank)].host;
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

/// "0-7" for neighbours, "0 2 4 6" for others.
std::string ranks_text(const std::vector<int>& ranks) {
  const bool neighbours =
      ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1 && ranks.size() > 2;
  if (neighbours) return fmt::format("{}-{}", ranks.front(), ranks.back());
  return fmt::format("{}", fmt::join(ranks, " "));
}

/// A line for each kind of group and the hosts that such groups are on.
void add_groups(Text& text, const RankLayout& layout) {
  if (layout.groups.empty()) return;
  text.line("\nGroups of ranks, by their hosts:");
  for (const RankGroups& kind : layout.groups) {
    std::vector<std::pair<std::string, std::vector<std::string>>> lines;
    for (const std::vector<int>& group : kind.groups) {
      const std::string hosts = fmt::format("{}", fmt::join(hosts_of(group, layout.places), ", "));
      if (lines.empty() || lines.back().first != hosts) lines.push_back({hosts, {}});
      lines.back().second.push_back(ranks_text(group));
    }
    for (const auto& [hosts, groups] : lines) {
      text.line("  {:>7} of {}  {}:  {}", kind.kind, kind.groups.front().size(), hosts,
                fmt::join(groups, " | "));
    }
  }
}

Value pairs(const std::vector<Variable>& variables) {
  Value result = Value::Object{};
  for (const Variable& variable : variables) result.set(variable.name, variable.value);
  return result;
}

Value ranks_value(const std::vector<RankPlace>& ranks) {
  Value::List result;
  for (const RankPlace& place : ranks) {
    Value row = Value::Object{};
    row.set("rank", place.rank);
    row.set("host", place.host);
    row.set("local_rank", place.local_rank);
    for (const auto& [axis, number] : place.grid) row.set(fmt::format("{}_rank", axis), number);
    result.push_back(std::move(row));
  }
  return result;
}

Value groups_value(const std::vector<RankGroups>& kinds) {
  Value result = Value::Object{};
  for (const RankGroups& kind : kinds) {
    Value::List groups;
    for (const std::vector<int>& group : kind.groups) {
      groups.emplace_back(Value::List(group.begin(), group.end()));
    }
    result.set(std::string(kind.kind), std::move(groups));
  }
  return result;
}

}  // namespace

LaunchPlan plan_to_show(const JobConfig& job, const HostFacts& facts) {
  LaunchPlan plan = make_launch_plan(job, facts);
  plan.partition = look_at_partition_file(plan.outline);
  if (plan.partition && !plan.partition->warning.empty()) {
    plan.warnings.push_back(plan.partition->warning);
  }
  return plan;
}

std::string plan_text(const LaunchPlan& plan, const Secrets& secrets) {
  const JobOutline& outline = plan.outline;
  Text text;
  text.line("Runner:     {} ({})", name_of(outline.runner.kind), outline.runner.reason);
  if (!outline.cluster.empty()) text.line("Cluster:    {}", outline.cluster);
  text.line("This host:  {}, {}", outline.runner.current_host, name_of(outline.runner.role));
  text.line("Hosts:      {} (master {})", fmt::join(outline.runner.hosts, ", "),
            outline.runner.master);
  text.line("Processes:  {} per host, {} in all", outline.runner.processes_per_host,
            outline.ranks.total_processes);
  text.line("Interface:  {}",
            outline.network.interface_name.empty() ? "not named" : outline.network.interface_name);
  text.line("Directory:  {}", outline.code.folder.string());
  text.line("Code:       {}", code_words(outline.code));
  if (outline.certificates) {
    text.line("Trusts:     {} besides {}", outline.certificates->extra.string(),
              outline.certificates->system.string());
  }
  if (outline.package_repository) {
    text.line("Packages:   from CodeArtifact repository {} of domain {} in {}",
              outline.package_repository->name, outline.package_repository->domain,
              outline.package_repository->region);
  }
  if (!outline.checkpoints.address.empty()) {
    text.line("Saves:      {}, which the service synchronises with {}",
              outline.checkpoints.folder.string(), outline.checkpoints.address);
  }
  if (outline.intermediate_output) {
    const auto& prefix = outline.intermediate_output->prefix;
    text.line("Uploads:    output/intermediate to {}",
              prefix ? prefix->text() : outline.intermediate_output->location);
  }
  text.line("Kind:       {}", name_of(plan.entry.kind));
  if (plan.partition) text.line("Partition:  {}", partition_words(*plan.partition));
  add_ranks(text, outline.ranks.places);
  add_groups(text, outline.ranks);
  text.list("Listens", outline.network.listens);
  text.list("Warnings", plan.warnings);
  text.list("Notes", plan.notes);

  text.line("\nEnvironment:");
  for (const Variable& variable : secrets.mask(outline.environment.variables)) {
    text.line("  {}={}", variable.name, shell_quote(variable.value));
  }
  if (!plan.files.empty()) text.line("\nFiles to write:");
  for (const PlannedFile& file : plan.files) {
    text.line("  {} ({} bytes)", file.path.string(), file.content.size());
  }
  if (!plan.entry.install.empty()) text.line("\nInstalled first:");
  for (const auto& command : plan.entry.install)
    text.line("  {}", shell_join(secrets.mask(command)));

  if (plan.check)
    text.line("\nCheck before the start:\n  {}", shell_join(secrets.mask(plan.check->argv)));
  if (plan.command.argv.empty()) {
    text.line("\nCommand:\n  none: this host serves the ranks that {} starts on it",
              outline.runner.master);
    text.line("\nCommand of a rank:\n  {}", shell_join(secrets.mask(plan.command.user_command)));
  } else {
    text.line("\nCommand:\n  {}", shell_join(secrets.mask(plan.command.argv)));
  }
  return secrets.mask(text.take());
}

std::string plan_json(const LaunchPlan& plan, const Secrets& secrets) {
  const JobOutline& outline = plan.outline;
  Value result = Value::Object{};
  result.set("runner", name_of(outline.runner.kind));
  result.set("role", name_of(outline.runner.role));
  result.set("reason", outline.runner.reason);
  if (!outline.cluster.empty()) result.set("cluster", outline.cluster);
  result.set("current_host", outline.runner.current_host);
  result.set("master", outline.runner.master);
  result.set("hosts", Value::list_of(outline.runner.hosts));
  result.set("processes_per_host", outline.runner.processes_per_host);
  result.set("total_processes", outline.ranks.total_processes);
  result.set("interface_name", outline.network.interface_name);
  result.set("listens", Value::list_of(outline.network.listens));
  result.set("working_directory", outline.code.folder.string());
  result.set("entry_point_kind", name_of(plan.entry.kind));
  result.set("code", code_value(outline.code));
  result.set("package_repository",
             outline.package_repository ? Value(outline.package_repository->name) : Value());
  result.set("checkpoint_folder", outline.checkpoints.folder.string());
  const auto& output = outline.intermediate_output;
  result.set("intermediate_output",
             !output ? Value() : Value(output->prefix ? output->prefix->text() : output->location));
  result.set("ranks", ranks_value(outline.ranks.places));
  result.set("groups", groups_value(outline.ranks.groups));
  result.set("environment", pairs(outline.environment.variables));
  result.set("host_environment", pairs(outline.environment.host_variables));
  result.set("unset", Value::list_of(outline.environment.unset));
  result.set("partition", partition_value(plan.partition));
  Value::List files;
  for (const PlannedFile& file : plan.files) files.emplace_back(file.path.string());
  result.set("files", std::move(files));
  result.set("make_executable", plan.entry.make_executable.string());
  Value::List install;
  for (const auto& command : plan.entry.install) install.push_back(Value::list_of(command));
  result.set("install", std::move(install));
  result.set("argv", Value::list_of(plan.command.argv));
  if (plan.check) result.set("check", Value::list_of(plan.check->argv));
  result.set("user_command", Value::list_of(plan.command.user_command));
  result.set("notes", Value::list_of(plan.notes));
  result.set("warnings", Value::list_of(plan.warnings));
  return opt_ml::to_json_indented(secrets.mask(result), kIndent) + "\n";
}

}  // namespace entrypoint
