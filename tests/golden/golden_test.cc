// SPDX-License-Identifier: Apache-2.0
// Each folder beside this file is a case: a job tree in, the launch plan out.
//
//   opt_ml/           the tree
//   environment       variables of the process, NAME=value lines (optional)
//   machine.json      what differs from the default machine (optional)
//   argv, user_command, env, plan   expected: one word, one variable, one line each; or
//   failure           expected: the text of the error
//
// SMP_UPDATE_GOLDEN=1 rewrites what is expected; review the difference as code.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/plan/plan_report.h"
#include "opt_ml_layout/json_document.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = SMP_GOLDEN_FOLDER;
constexpr const char* kExpected[] = {"argv", "user_command", "env", "plan", "failure"};

std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

smp::Variables read_environment(const fs::path& file) {
  smp::Variables result{{"PATH", "/usr/local/bin:/usr/bin:/bin"}};
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t mark = line.find('=');
    if (mark != std::string::npos) result[line.substr(0, mark)] = line.substr(mark + 1);
  }
  return result;
}

HostFacts read_machine(const fs::path& file) {
  HostFacts facts{.num_cpus = 8,
                  .python = "/opt/venv/bin/python3",
                  .has_mpi4py = true,
                  .torch_version = "2.11.0",
                  .has_torchrun = true,
                  .interfaces = {{.name = "lo", .loopback = true, .addresses = {"127.0.0.1"}},
                                 {.name = "eth0", .addresses = {"10.0.0.2"}}},
                  .hostname_shim = "/opt/smp/lib/libsmp_hostname.so",
                  .launcher = "/opt/smp/bin/train"};
  const auto machine = opt_ml::read_json_file(file);
  if (!machine) return facts;
  const auto number = [&](const char* key, int& field) {
    if (const auto* value = machine->find(key)) field = static_cast<int>(value->integer().value());
  };
  number("num_cpus", facts.num_cpus);
  number("num_gpus", facts.num_gpus);
  number("num_neurons", facts.num_neurons);
  const auto flag = [&](const char* key, bool& field) {
    if (const auto* value = machine->find(key)) field = value->boolean().value();
  };
  flag("has_mpi4py", facts.has_mpi4py);
  flag("has_smddprun", facts.has_smddprun);
  flag("has_smddpmprun", facts.has_smddpmprun);
  if (const auto* value = machine->find("interface")) facts.interfaces[1].name = *value->text();
  if (const auto* value = machine->find("link_local_interface")) {
    facts.interfaces.push_back({.name = *value->text(), .addresses = {"169.254.7.1"}});
  }
  if (const auto* value = machine->find("efa_device")) facts.efa.devices = {*value->text()};
  facts.efa.has_gpus = facts.num_gpus > 0;
  if (const auto* value = machine->find("nccl_plugin")) facts.efa.nccl_plugin = *value->text();
  return facts;
}

/// The tree's real place does not belong into an expected text.
std::string at_opt_ml(std::string text, const fs::path& tree) {
  const std::string place = tree.string();
  for (std::size_t at = 0; (at = text.find(place, at)) != std::string::npos;) {
    text.replace(at, place.size(), "/opt/ml");
  }
  return text;
}

std::string in_lines(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + "\n";
  return text;
}

std::string in_lines(const std::vector<Variable>& variables) {
  std::string text;
  for (const Variable& variable : variables) text += variable.name + "=" + variable.value + "\n";
  return text;
}

using Results = std::map<std::string, std::string>;

Results run_case(const fs::path& folder) {
  const fs::path tree = folder / "opt_ml";
  Results results;
  try {
    const JobConfig job =
        read_job_config(opt_ml::Layout(tree), read_environment(folder / "environment"));
    const LaunchPlan plan = make_launch_plan(job, read_machine(folder / "machine.json"));
    results = {{"argv", in_lines(plan.command.argv)},
               {"user_command", in_lines(plan.command.user_command)},
               {"env", in_lines(plan.outline.environment.variables)},
               {"plan", plan_text(plan, Secrets(job.environment, job.files.hyperparameters))}};
  } catch (const smp::Error& error) {
    results = {{"failure", std::string(error.what()) + "\n"}};
  }
  for (auto& [name, text] : results) text = at_opt_ml(std::move(text), tree);
  return results;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (fs::exists(entry.path() / "opt_ml")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, PlanIsAsExpected) {
  const fs::path folder = kFolder / GetParam();

  const Results results = run_case(folder);

  const char* const update = std::getenv("SMP_UPDATE_GOLDEN");
  for (const char* name : kExpected) {
    const auto result = results.find(name);
    if (update != nullptr && std::string_view(update) == "1") {
      fs::remove(folder / name);
      if (result != results.end()) std::ofstream(folder / name, std::ios::binary) << result->second;
    }
    EXPECT_EQ(fs::exists(folder / name), result != results.end()) << name;
    if (result == results.end()) continue;
    EXPECT_EQ(result->second, read_text(folder / name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, ::testing::ValuesIn(case_names()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace entrypoint
