// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/doctor.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "entrypoint/config/job_config.h"
#include "entrypoint/doctor/findings.h"
#include "entrypoint/doctor/host_probe.h"
#include "entrypoint/doctor/python_packages.h"
#include "entrypoint/network/interfaces.h"
#include "entrypoint/network/reachability.h"
#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/process/spawn.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/tcp.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kName{2000};
constexpr std::chrono::milliseconds kAnswer{2000};

Finding examine_own_name(const std::string& host, bool needs_name) {
  const std::string subject = "host " + host;
  if (NameLookup(host).resolves(kName))
    return {subject, Health::kGood, "this host; its name resolves", {}};
  constexpr const char* kFinding = "this host; its name does not resolve";
  if (!needs_name) return {subject, Health::kGood, kFinding, {}};
  return {subject, Health::kBad, kFinding,
          "start the container with that name or alias on the job's network"};
}

/// A host that is up refuses at once while nothing listens there yet, and that is fine.
Finding examine_peer(const std::string& host, int port) {
  const std::string subject = "host " + host;
  const std::vector<tcp::Address> addresses =
      NameLookup(host).resolves(kName) ? tcp::resolve(host, port) : std::vector<tcp::Address>{};
  if (addresses.empty()) {
    return {subject, Health::kBad, "its name does not resolve",
            "start its container, and put all of them on one network that knows their names"};
  }
  try {
    tcp::Connection::open(addresses, kAnswer);
    return {subject, Health::kGood, fmt::format("listens at port {}", port), {}};
  } catch (const smp::HostError& error) {
    const std::string what = error.what();
    if (what.find(std::strerror(ECONNREFUSED)) != std::string::npos) {
      return {
          subject,
          Health::kGood,
          fmt::format("{} is up; nothing listens at port {} yet", addresses.front().text(), port),
          {}};
    }
    return {subject, Health::kBad, fmt::format("port {}: {}", port, what),
            "let the hosts reach each other: security groups, firewalls, one network"};
  }
}

class Examination {
 public:
  Examination(const opt_ml::Layout& layout, const smp::Variables& environment)
      : layout_(layout), environment_(environment), path_(smp::value_or(environment, "PATH")) {}

  std::vector<Finding> run() {
    look_at_cluster();
    look_at_config();
    look_at_python();
    look_at_programs();
    look_at_hostname_shim();
    look_at_machine();
    look_at_interface();
    look_at_hosts();
    return std::move(findings_);
  }

 private:
  void add(std::string subject, Health health, std::string finding, std::string remedy = {}) {
    findings_.push_back({std::move(subject), health, std::move(finding), std::move(remedy)});
  }

  [[nodiscard]] bool has_several_hosts() const { return job_ && job_->hosts.all.size() > 1; }

  /// The engine around this process, and what the job needs of it.
  void look_at_cluster() {
    constexpr const char* kSubject = "cluster";
    try {
      if (!read_options(environment_).cluster) return;
      cluster_ = find_cluster(environment_);
      if (!cluster_) return;
      add(kSubject, Health::kGood, fmt::format("{} ({})", cluster_->title(), cluster_->reason));
    } catch (const smp::ConfigError& error) {
      add(kSubject, Health::kBad, error.what(),
          "let all variables of the engine into the container, or set SM_LAUNCH_CLUSTER=off");
      return;
    }
    if (cluster_->cluster == Cluster::kHostfile) {
      try {
        const fs::path key = find_mounted_key(read_options(environment_).ssh_key, environment_);
        add("job's key", Health::kGood, key.string());
      } catch (const smp::ConfigError& error) {
        add("job's key", Health::kBad, error.what(), "correct sshAuthMountPath or runAsUser");
      }
    }
    const std::string pmix = smp::value_or(environment_, "PMIX_VERSION");
    if (!pmix.empty()) {
      add("PMIx", Health::kGood, "the engine's server has version " + pmix);
    }
  }

  void look_at_config() {
    std::error_code ignored;
    if (!cluster_ && smp::value_or(environment_, "SAGEMAKER_BASE_DIR").empty() &&
        !fs::exists(layout_.resource_config(), ignored)) {
      add("config", Health::kGood,
          fmt::format("no job in {}: the machine alone is looked at", layout_.base().string()));
      return;
    }
    try {
      job_ = read_job_config(layout_, environment_);
      add("config", Health::kGood,
          fmt::format("{}: host {} of {}", layout_.input_config().string(), job_->current_host(),
                      job_->hosts.all.size()));
    } catch (const smp::Error& error) {
      add("config", Health::kBad, error.what(),
          "run it on a job's tree (SAGEMAKER_BASE_DIR), or make one: train --make-tree DIR");
      return;
    }
    try {
      plan_ = make_launch_plan(*job_, probe_host(*job_));
      add("plan", Health::kGood, plan_->outline.runner.reason);
      for (const std::string& warning : plan_->warnings) {
        add("plan", Health::kWarning, warning, "train --plan shows what would be started");
      }
    } catch (const smp::Error& error) {
      add("plan", Health::kBad, error.what(), "correct the job's hyperparameters or its code");
    }
  }

  void look_at_python() {
    try {
      python_ = find_python(job_ ? job_->options.python : "", path_);
    } catch (const smp::ConfigError& error) {
      add("python", Health::kBad, error.what(), "correct or unset SM_LAUNCH_PYTHON");
      return;
    }
    if (python_.empty()) {
      add("python", Health::kBad, "no python3 on PATH (" + path_ + ")",
          "install Python, or set SM_LAUNCH_PYTHON");
      return;
    }
    add("python", Health::kGood, python_.string());
    packages_ = package_folders(python_, smp::value_or(environment_, "PYTHONPATH"));
    if (has_package(packages_, "mpi4py")) {
      add("mpi4py", Health::kGood, "installed");
    } else {
      add("mpi4py", Health::kWarning, "not installed for " + python_.string(),
          "pip install mpi4py, so that an exception on one rank ends all of them at once");
    }
  }

  void look_at_programs() {
    const bool several = has_several_hosts();
    const auto look = [&](const char* name, const fs::path& program, const char* package,
                          bool needed) {
      if (!program.empty()) {
        add(name, Health::kGood, program.string());
      } else {
        add(name, needed ? Health::kBad : Health::kWarning, "not found",
            fmt::format("apt-get install {}", package));
      }
    };
    const auto on_path = [&](const char* name) { return find_program(name, path_); };
    look("mpirun", on_path("mpirun"), "openmpi-bin", job_ && job_->distribution.mpi);
    look("ssh", on_path("ssh"), "openssh-client", several);
    look("sshd", find_sshd(path_), "openssh-server", several);
    look("ssh-keygen", on_path("ssh-keygen"), "openssh-client", several);
  }

  void look_at_hostname_shim() {
    const fs::path shim = find_hostname_shim(launcher_path());
    if (shim.empty()) {
      add("hostname shim", Health::kBad, "lib/smp/libsmp_hostname.so is not beside this binary",
          "install the launcher with `cmake --install`, do not copy the binary alone");
    } else {
      add("hostname shim", Health::kGood, shim.string());
    }
  }

  void look_at_machine() {
    MachineNeeds needs{.several_hosts = has_several_hosts()};
    if (job_) {
      needs.instance_type = job_->files.resources.current_instance_type;
      needs.efa = job_->options.efa;
    }
    if (plan_) needs.processes_per_host = plan_->outline.runner.processes_per_host;
    std::optional<TorchFacts> torch;
    if (!python_.empty()) torch = ask_torch(python_);
    std::vector<fs::path> folders{layout_.output(), layout_.model(), "/tmp"};
    if (plan_ && plan_->outline.runner.runs_mpirun())
      folders.push_back(temporary_folder(environment_));
    const MachineFacts facts = entrypoint::look_at_machine(environment_, packages_, folders);
    const auto findings = judge_machine(facts, torch, needs);
    findings_.insert(findings_.end(), findings.begin(), findings.end());
  }

  void look_at_interface() {
    if (!job_) return;
    try {
      InterfaceQuestion question{.current_host = job_->current_host(),
                                 .configured = job_->files.resources.network_interface_name,
                                 .interfaces = list_interfaces(),
                                 .several_hosts = has_several_hosts()};
      for (const std::string& host : job_->hosts.all) {
        const bool other = host != job_->current_host();
        if (other && question.route.empty()) question.route = NameLookup(host).route(kName);
      }
      const InterfaceChoice choice = choose_interface(question);
      if (choice.warning.empty()) {
        add("interface", Health::kGood, choice.note.empty() ? choice.name : choice.note);
      } else if (!has_several_hosts()) {
        add("interface", Health::kGood, choice.warning);
      } else {
        add("interface", Health::kWarning, choice.warning,
            "correct network_interface_name in resourceconfig.json");
      }
    } catch (const smp::Error& error) {
      add("interface", Health::kBad, error.what(),
          "put the container on the job's network, or correct network_interface_name");
    }
  }

  /// All at once: of many hosts none may answer.
  void look_at_hosts() {
    if (!job_) return;
    const int port = job_->options.ssh_port != 0 ? job_->options.ssh_port : default_ssh_port();
    std::vector<std::future<Finding>> answers;
    for (const std::string& host : job_->hosts.all) {
      const bool own = host == job_->current_host();
      const bool needs_name = has_several_hosts();
      answers.push_back(std::async(std::launch::async, [host, own, needs_name, port] {
        return own ? examine_own_name(host, needs_name) : examine_peer(host, port);
      }));
    }
    for (std::future<Finding>& answer : answers) findings_.push_back(answer.get());
    if (has_several_hosts()) {
      add("encryption", Health::kGood,
          "none between hosts, but for ssh: encrypt_inter_container_traffic=True of the estimator "
          "has SageMaker encrypt all of it; elsewhere the network has to");
    }
  }

  const opt_ml::Layout& layout_;
  const smp::Variables& environment_;
  std::string path_;
  fs::path python_;
  std::vector<fs::path> packages_;
  std::optional<ClusterJob> cluster_;
  std::optional<JobConfig> job_;
  std::optional<LaunchPlan> plan_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> examine(const opt_ml::Layout& layout, const smp::Variables& environment) {
  return Examination(layout, environment).run();
}

}  // namespace entrypoint
