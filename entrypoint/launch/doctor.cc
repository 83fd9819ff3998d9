// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/launch/doctor.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "entrypoint/config/job_config.h"
#include "entrypoint/fabric/interfaces.h"
#include "entrypoint/launch/host_probe.h"
#include "entrypoint/launch/python_packages.h"
#include "entrypoint/launch/spawn.h"
#include "smp_runtime/core/error.h"

namespace entrypoint::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPython{60};
constexpr std::chrono::milliseconds kName{2000};

class Examination {
 public:
  Examination(const opt_ml::Layout& layout, const EnvironmentMap& environment)
      : layout_(layout), environment_(environment), path_(value_or(environment, "PATH")) {}

  std::vector<Finding> run() {
    look_at_config();
    look_at_python();
    look_at_programs();
    look_at_hostname_shim();
    look_at_shared_memory();
    look_at_output();
    look_at_hosts();
    return std::move(findings_);
  }

 private:
  void add(std::string subject, Health health, std::string finding, std::string remedy = {}) {
    findings_.push_back({std::move(subject), health, std::move(finding), std::move(remedy)});
  }

  void look_at_config() {
    try {
      job_ = read_job_config(layout_, environment_);
      add("config", Health::kGood,
          fmt::format("{}: host {} of {}", layout_.input_config().string(), job_->current_host(),
                      job_->hosts.size()));
    } catch (const smp::Error& error) {
      add("config", Health::kBad, error.what(),
          "run it on a job's tree (SAGEMAKER_BASE_DIR), or make one: train --make-tree DIR");
    }
  }

  void look_at_python() {
    fs::path python;
    for (const char* name : {"python3", "python"}) {
      if (python.empty()) python = find_program(name, path_);
    }
    if (job_ && !job_->knobs.python.empty()) python = job_->knobs.python;
    if (python.empty()) {
      add("python", Health::kBad, "no python3 on PATH (" + path_ + ")",
          "install Python, or set SM_LAUNCH_PYTHON");
      return;
    }
    add("python", Health::kGood, python.string());
    const auto folders = package_folders(python, value_or(environment_, "PYTHONPATH"));
    // A real import: files alone do not show a missing CUDA library.
    const Completed torch =
        run_command({.argv = {python.string(), "-c", "import torch; print(torch.__version__)"},
                     .environment = current_environment()},
                    kPython);
    if (torch.status.ok()) {
      add("torch", Health::kGood, torch.output.substr(0, torch.output.find('\n')));
    } else {
      const std::string words = torch.output.substr(0, torch.output.find_last_not_of('\n') + 1);
      add("torch", Health::kWarning,
          torch.timed_out ? "the import takes over 60 s" : words.substr(words.rfind('\n') + 1),
          "install torch for this interpreter if the script needs it");
    }
    if (has_package(folders, "mpi4py")) {
      add("mpi4py", Health::kGood, "installed");
    } else {
      add("mpi4py", Health::kWarning, "not installed for " + python.string(),
          "pip install mpi4py, so that an exception on one rank ends all of them at once");
    }
  }

  void look_at_programs() {
    const bool several = job_ && job_->hosts.size() > 1;
    const auto look = [&](const char* name, const char* package, bool needed) {
      fs::path program = find_program(name, path_);
      if (program.empty() && access((fs::path("/usr/sbin") / name).c_str(), X_OK) == 0) {
        program = fs::path("/usr/sbin") / name;
      }
      if (!program.empty()) {
        add(name, Health::kGood, program.string());
      } else {
        add(name, needed ? Health::kBad : Health::kWarning, "not found",
            fmt::format("apt-get install {}", package));
      }
    };
    look("mpirun", "openmpi-bin", job_ && job_->distribution.mpi);
    look("ssh", "openssh-client", several);
    look("sshd", "openssh-server", several);
    look("ssh-keygen", "openssh-client", several);
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

  void look_at_shared_memory() {
    constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
    struct statvfs info {};
    if (statvfs("/dev/shm", &info) != 0) {
      add("/dev/shm", Health::kBad, "not there", "start the container with --shm-size=2g");
      return;
    }
    const double size = static_cast<double>(info.f_blocks) * static_cast<double>(info.f_frsize);
    const bool small = size < kGiB;
    add("/dev/shm", small ? Health::kWarning : Health::kGood,
        fmt::format("{:.2f} GiB", size / kGiB),
        small ? "data loaders and NCCL use it: start the container with --shm-size=2g" : "");
  }

  void look_at_output() {
    fs::path folder = layout_.output();
    std::error_code ignored;
    while (!fs::exists(folder, ignored) && folder.has_relative_path())
      folder = folder.parent_path();
    const bool writable = access(folder.c_str(), W_OK) == 0;
    add("output", writable ? Health::kGood : Health::kBad,
        fmt::format("{} is {}writable", folder.string(), writable ? "" : "not "),
        writable ? "" : "success and failure files go there: mount it writable");
  }

  void look_at_hosts() {
    if (!job_) return;
    const bool several = job_->hosts.size() > 1;
    for (const std::string& host : job_->hosts) {
      if (resolves(host, kName)) {
        add("host " + host, Health::kGood, "its name resolves");
      } else {
        add("host " + host, several ? Health::kBad : Health::kWarning, "its name does not resolve",
            several ? "put all containers of the job on one network that knows their names" : "");
      }
    }
  }

  const opt_ml::Layout& layout_;
  const EnvironmentMap& environment_;
  std::string path_;
  std::optional<JobConfig> job_;
  std::vector<Finding> findings_;
};

std::string_view word(Health health) {
  switch (health) {
    case Health::kGood:
      return "ok";
    case Health::kWarning:
      return "warning";
    case Health::kBad:
      break;
  }
  return "bad";
}

}  // namespace

std::vector<Finding> examine(const opt_ml::Layout& layout, const EnvironmentMap& environment) {
  return Examination(layout, environment).run();
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text +=
        fmt::format("{:<8} {:<16} {}\n", word(finding.health), finding.subject, finding.finding);
    if (!finding.remedy.empty()) text += fmt::format("{:<25} -> {}\n", "", finding.remedy);
  }
  return text;
}

int findings_exit_code(const std::vector<Finding>& findings) {
  return std::ranges::any_of(findings, [](const Finding& f) { return f.health == Health::kBad; })
             ? 1
             : 0;
}

}  // namespace entrypoint::launch
