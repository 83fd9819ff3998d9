// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/plan_report.h"

#include <iterator>
#include <string_view>

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
  const bool grid = ranks.front().grid.has_value();
  text.line("\nRanks:");
  text.line("  {:>5}  {:>5}{}  host", "rank", "local",
            grid ? fmt::format("  {:>3}  {:>3}  {:>3}  {:>3}", "pp", "tp", "dp", "rdp") : "");
  for (const RankPlace& place : ranks) {
    const auto& at = place.grid;
    text.line(
        "  {:>5}  {:>5}{}  {}", place.rank, place.local_rank,
        at ? fmt::format("  {:>3}  {:>3}  {:>3}  {:>3}", at->pp, at->tp, at->dp, at->rdp) : "",
        place.host);
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
    if (place.grid) {
      row.set("pp_rank", place.grid->pp);
      row.set("tp_rank", place.grid->tp);
      row.set("dp_rank", place.grid->dp);
      row.set("rdp_rank", place.grid->rdp);
    }
    result.push_back(std::move(row));
  }
  return result;
}

}  // namespace

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
  add_ranks(text, outline.ranks.places);
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
  result.set("environment", pairs(outline.environment.variables));
  result.set("host_environment", pairs(outline.environment.host_variables));
  result.set("unset", Value::list_of(outline.environment.unset));
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
