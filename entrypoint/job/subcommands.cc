// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/subcommands.h"

#include <iostream>

#include <fmt/format.h>

#include "entrypoint/config/job_config.h"
#include "entrypoint/config/make_tree_command.h"
#include "entrypoint/doctor/doctor.h"
#include "entrypoint/job/other_command.h"
#include "entrypoint/report/report_command.h"
#include "entrypoint/runners/rank_exec.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {

namespace {

/// Where the page went, and the verdict.
std::string report_of(const CommandLine& line) {
  report::ReportRequest request{.page = line.page};
  for (const auto& folder : line.folders) request.folders.push_back(report::find_records(folder));
  if (request.folders.empty()) {
    request.folders.push_back(
        report::find_records(find_layout(smp::read_variables()).output_data()));
  }
  if (request.page.empty()) request.page = request.folders.front().parent_path() / "report.html";
  const std::string verdict = report::write_report(request);
  return fmt::format("{}\n{}", request.page.string(),
                     verdict.empty() ? "No rank recorded a step." : verdict);
}

}  // namespace

int run_side_action(const CommandLine& line) {
  switch (line.action) {
    case Action::kDoctor: {
      const EnvironmentMap environment = smp::read_variables();
      const auto findings = examine(find_layout(environment), environment);
      std::cout << (line.json ? findings_json(findings) : findings_text(findings));
      return findings_exit_code(findings);
    }
    case Action::kRankExec:
      return run_rank({.command = line.command,
                       .command_file = line.command_file,
                       .sets_rank_variables = line.sets_rank_variables});
    case Action::kMakeTree:
      run_make_tree(line.tree, std::cout);
      return 0;
    case Action::kReport:
      std::cout << report_of(line) << "\n";
      return 0;
    case Action::kHelp:
      std::cout << help_text();
      return 0;
    case Action::kVersion:
      std::cout << "train " << SMP_VERSION << "\n";
      return 0;
    case Action::kExecOther:
      become(line.command);
    case Action::kTrain:
    case Action::kCheck:
    case Action::kPlan:
      break;
  }
  throw smp::InternalError("action {} is not a side action", static_cast<int>(line.action));
}

}  // namespace entrypoint
