// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/preparation.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <string>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entrypoint/config/shell_text.h"
#include "entrypoint/doctor/python_packages.h"
#include "entrypoint/process/process_runner.h"
#include "entrypoint/runners/child_command.h"
#include "entrypoint/ssh/peer.h"
#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {
namespace {

constexpr std::chrono::seconds kOneLookup{30};
constexpr std::chrono::minutes kTokenLimit{5};

/// Lets everybody execute the program, and nobody change it who could not before.
void make_executable(const std::filesystem::path& program) {
  constexpr mode_t kExecute = S_IXUSR | S_IXGRP | S_IXOTH;
  // The code may hold a link to it; what takes the place of the file behind it is not followed.
  std::error_code failed;
  const std::filesystem::path target = std::filesystem::canonical(program, failed);
  const smp::FileDescriptor file(
      open(target.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (file.is_open() && fstat(file.get(), &info) == 0) {
    const mode_t mode = info.st_mode & ALLPERMS;
    if ((mode & kExecute) == kExecute || fchmod(file.get(), mode | kExecute) == 0) return;
  }
  const int error = errno;
  if (access(program.c_str(), X_OK) == 0) return;  // another user's, or where nobody can write
  throw smp::ConfigError(
      "{}: has no execute permission and cannot be given it: {}; give it one where it comes from "
      "(chmod +x)",
      program.string(), std::strerror(error));
}

void write_files(const LaunchPlan& plan) {
  for (const PlannedFile& file : plan.files) {
    std::error_code failed;
    std::filesystem::create_directories(file.path.parent_path(), failed);
    if (failed) {
      throw smp::HostError("{}: {}; a variable that is too long for the environment goes there",
                           file.path.parent_path().string(), failed.message());
    }
    smp::replace_text(file.path, file.content, smp::kForOwner);
  }
  if (!plan.entry.make_executable.empty()) make_executable(plan.entry.make_executable);
}

std::string install_error_class(const std::vector<std::string>& argv) {
  const bool installs_module = std::ranges::find(argv, ".") != argv.end();
  return installs_module ? "InstallModuleError" : "InstallRequirementsError";
}

/// The environment of pip. The index holds a token: it is in nobody else's environment, in no
/// command line and in no log.
std::optional<std::vector<std::string>> pip_environment(const JobOutline& outline,
                                                        const Preparation& means) {
  std::vector<std::string> environment =
      planned_environment(outline.environment, means.settings.inherited);
  if (!outline.package_repository) return environment;
  const PackageRepository& repository = *outline.package_repository;
  SMP_LOG(info, "pip installs from CodeArtifact repository {} of domain {} in {}", repository.name,
          repository.domain, repository.region);
  const auto index = run_helper(
      means.processes, "asking CodeArtifact for a token",
      [&] { return fetch::load_transfer(means.transfer)->package_index(repository); }, kTokenLimit);
  if (!index) return std::nullopt;
  set_variable(environment, "PIP_INDEX_URL", *index);
  return environment;
}

/// The library's extension fits the torch that it was built with.
class InstalledTorch {
 public:
  InstalledTorch(std::string python, std::vector<std::string> environment)
      : python_(std::move(python)), environment_(std::move(environment)), before_(version()) {}

  void warn_if_replaced() const {
    const std::string now = version();
    if (before_.empty() || now == before_) return;
    SMP_LOG(warning,
            "pip replaced torch {} by {}: compiled extensions fit the torch that they were built "
            "with, the model-parallel library's among them; leave torch out of the requirements, "
            "or pin torch=={}",
            before_, now.empty() ? "nothing" : now, before_);
  }

 private:
  [[nodiscard]] std::string version() const {
    return installed_version(python_, "torch", environment_);
  }

  std::string python_;
  std::vector<std::string> environment_;
  std::string before_;
};

std::optional<Outcome> install(const LaunchPlan& plan, const Preparation& means) {
  ProcessRunner& runner = means.processes;
  if (plan.entry.install.empty()) return std::nullopt;
  const auto environment = pip_environment(plan.outline, means);
  if (!environment) {
    return Outcome{.status = stopped_status(runner), .command = plan.entry.install.front()};
  }
  const InstalledTorch torch(plan.entry.install.front().front(), *environment);
  for (const std::vector<std::string>& argv : plan.entry.install) {
    const std::string error_class = install_error_class(argv);
    if (error_class == "InstallModuleError") {
      SMP_LOG(info, "Installing module with the following command:\n{}",
              shell_join(means.secrets.mask(argv)));
    } else {
      SMP_LOG(info, "Installing dependencies from requirements.txt");
    }
    const ChildId pip =
        runner.start(Command{.name = "pip",
                             .argv = argv,
                             .environment = *environment,
                             .working_directory = plan.outline.code.folder,
                             .output = Output::kStream,
                             .on_stop = stop_steps(Runner::kProcess, means.settings.stop_after)});
    const ExitStatus status = run_to_end(runner, pip);
    if (!status.ok()) return Outcome{.status = status, .error_class = error_class, .command = argv};
    if (runner.stop_signal() != 0)
      return Outcome{.status = stopped_status(runner), .command = argv};
  }
  torch.warn_if_replaced();
  return std::nullopt;
}

std::optional<Outcome> wait_for_names(const LaunchPlan& plan, const Preparation& means) {
  ProcessRunner& runner = means.processes;
  const Deadline deadline = Clock::now() + means.settings.worker_timeout;
  std::map<std::string, ChildId> helpers;
  for (const std::string& host : plan.outline.runner.hosts) {
    helpers[host] = runner.start(HelperProcess{.name = "look up " + host, .work = [host, deadline] {
                                                 wait_for_name(host, deadline);
                                                 return std::string{};
                                               }});
  }
  std::string missing;
  for (const auto& [host, helper] : helpers) {
    while (!runner.ended(helper) && runner.stop_signal() == 0) {
      if (runner.wait(deadline + kOneLookup) == Wake::kDeadline) break;
    }
    const auto ended = runner.ended(helper);
    if (!ended) runner.send(helper, SIGKILL);
    if (!ended || !ended->ok()) missing += (missing.empty() ? "" : ", ") + host;
  }
  if (runner.stop_signal() != 0) {
    return Outcome{.status = stopped_status(runner), .command = plan.command.argv};
  }
  if (!missing.empty()) {
    throw smp::HostError(
        "no address for {} after {} s; the job's containers must be on one network that knows them "
        "by the names in resourceconfig.json (SM_LAUNCH_WORKER_TIMEOUT sets the time)",
        missing,
        std::chrono::duration_cast<std::chrono::seconds>(means.settings.worker_timeout).count());
  }
  return std::nullopt;
}

}  // namespace

void log_summary(const JobConfig& job, const HostFacts& facts, const LaunchPlan& plan) {
  if (facts.num_gpus == 0) SMP_LOG(info, "No GPUs detected (normal if no gpus installed)");
  SMP_LOG(info, "train {}: cpus={} gpus={} neurons={}", SMP_VERSION, facts.num_cpus, facts.num_gpus,
          facts.num_neurons);
  if (!job.files.hyperparameters.not_json.empty()) {
    SMP_LOG(debug, "Hyperparameters that are text and not JSON: {}",
            fmt::join(job.files.hyperparameters.not_json, ", "));
  }
  if (job.program.framework_module) {
    const std::string& module = *job.program.framework_module;
    SMP_LOG(info, "Imported framework {}", module.substr(0, module.find(':')));
  }
  if (plan.outline.runner.kind == Runner::kSmddp) SMP_LOG(info, "Invoking SMDataParallel");
  if (plan.outline.runner.kind == Runner::kTorchrun) SMP_LOG(info, "Invoking TorchDistributed...");
  if (job.program.framework_module && plan.outline.runner.kind != Runner::kTrainingModule) {
    SMP_LOG(info, "Invoking user training script.");
  }
  if (!plan.outline.cluster.empty()) SMP_LOG(info, "Cluster: {}", plan.outline.cluster);
  SMP_LOG(info, "Runner: {}", plan.outline.runner.reason);
  for (const std::string& note : plan.notes) SMP_LOG(info, "{}", note);
  for (const std::string& warning : plan.warnings) SMP_LOG(warning, "{}", warning);
}

void join_certificates(const ExtraCertificates& certificates) {
  const std::string extra = smp::read_text(certificates.extra);
  if (extra.find("-----BEGIN CERTIFICATE-----") == std::string::npos) {
    throw smp::ConfigError(
        "SMP_EXTRA_CA_FILE={}: {}; bind a file of PEM certificates into the container, or unset it",
        certificates.extra.string(),
        extra.empty() ? "no such file, or it is empty" : "it holds no PEM certificate");
  }
  std::string text = smp::read_text(certificates.system);
  if (text.empty()) {
    SMP_LOG(warning, "{} is not there: only the authorities of {} are trusted",
            certificates.system.string(), certificates.extra.string());
  } else if (text.back() != '\n') {
    text += '\n';
  }
  std::error_code failed;
  std::filesystem::create_directories(certificates.joined.parent_path(), failed);
  smp::replace_text(certificates.joined, text + extra, smp::kForOwner);
}

std::optional<Outcome> prepare(const LaunchPlan& plan, const Preparation& means) {
  write_files(plan);
  if (auto outcome = install(plan, means)) return outcome;
  if (plan.outline.runner.hosts.size() == 1 || !means.settings.wait_for_names) return std::nullopt;
  SMP_LOG(info, "Block until all host DNS lookups succeed.");
  // The MPI runner waits for names itself, host by host, on its way to ssh.
  return plan.outline.runner.runs_mpirun() ? std::nullopt : wait_for_names(plan, means);
}

void log_invocation(const LaunchPlan& plan, const Secrets& secrets) {
  if (!smp::log::enabled(smp::log::Level::kInfo)) return;
  const ProgramEnvironment& environment = plan.outline.environment;
  std::string text = "Invoking user script\n\n";
  // Log readers search for these words, so they stay where the variables do not.
  if (smp::log::enabled(smp::log::Level::kDebug)) {
    text += "Training Env:\n\n";
    text += opt_ml::to_json_indented(secrets.mask(environment.job.training_environment), 4);
    text += "\n\nEnvironment variables:\n\n";
    for (const Variable& variable : secrets.mask(environment.variables)) {
      text += fmt::format("{}={}\n", variable.name, variable.value);
    }
  } else {
    text += fmt::format(
        "Training Env: in SM_TRAINING_ENV. Environment variables: {} are set; SM_LOG_LEVEL=10 "
        "prints all of them\n",
        environment.variables.size());
  }
  text += "\nInvoking script with the following command:\n\n";
  const auto& command = plan.command.argv.empty() ? plan.command.user_command : plan.command.argv;
  text += shell_join(secrets.mask(command)) + "\n\n";
  smp::log::write(smp::log::Level::kInfo, text);
}

}  // namespace entrypoint
