// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/findings.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "entrypoint/plan/host_facts.h"
#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/value.h"

namespace entrypoint {
namespace {

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

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

std::string in_gib(std::uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

/// ml.p4d.24xlarge and ml.g5.xlarge have GPUs by name.
bool promises_gpus(const std::string& instance_type) {
  return instance_type.starts_with("ml.p") || instance_type.starts_with("ml.g") ||
         instance_type == "local_gpu";
}

std::vector<std::string> texts(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> result;
  for (const auto& path : paths) result.push_back(path.string());
  return result;
}

class Judge {
 public:
  Judge(const MachineFacts& facts, const std::optional<TorchFacts>& torch,
        const MachineNeeds& needs)
      : facts_(facts), torch_(torch), needs_(needs) {}

  std::vector<Finding> judge() {
    if (torch_) judge_torch();
    judge_driver();
    judge_gpus();
    judge_nccl();
    judge_fabric();
    judge_memlock();
    judge_shared_memory();
    std::set<std::filesystem::path> seen;  // folders that are not there share the one above
    for (const DiskSpace& disk : facts_.disks) {
      if (seen.insert(disk.path).second) judge_disk(disk);
    }
    return std::move(findings_);
  }

 private:
  void good(std::string subject, std::string finding) {
    findings_.push_back({std::move(subject), Health::kGood, std::move(finding), {}});
  }
  void warn(std::string subject, std::string finding, std::string remedy) {
    findings_.push_back(
        {std::move(subject), Health::kWarning, std::move(finding), std::move(remedy)});
  }
  void bad(std::string subject, std::string finding, std::string remedy) {
    findings_.push_back({std::move(subject), Health::kBad, std::move(finding), std::move(remedy)});
  }

  void judge_torch() {
    if (torch_->problem) {
      warn("torch", *torch_->problem, "install torch for this interpreter if the script needs it");
      return;
    }
    good("torch", torch_->cuda.empty()
                      ? torch_->version
                      : fmt::format("{}, built for CUDA {}", torch_->version, torch_->cuda));
  }

  void judge_driver() {
    if (!facts_.driver_problem.empty()) {
      bad("driver", "nvidia-smi: " + facts_.driver_problem,
          "load the NVIDIA driver on the machine outside the container, then start it again");
      return;
    }
    if (facts_.driver_version.empty()) {
      if (facts_.gpu_device_nodes && !facts_.has_nvidia_smi) {
        bad("driver", "GPU devices are in the container, nvidia-smi is not",
            "set NVIDIA_DRIVER_CAPABILITIES=compute,utility where the container is started");
      } else {
        good("driver", "no NVIDIA driver: this machine computes on its CPUs");
      }
      return;
    }
    const int needed = torch_ ? oldest_driver(torch_->cuda) : 0;
    const int family = driver_family(facts_.driver_version);
    if (needed > family) {
      bad("driver",
          fmt::format("{} is older than CUDA {} needs ({})", facts_.driver_version, torch_->cuda,
                      needed),
          fmt::format("install driver {} or newer on the machine, or a torch for an older CUDA",
                      needed));
      return;
    }
    good("driver", facts_.driver_version);
  }

  void judge_gpus() {
    const int count = static_cast<int>(facts_.gpus.size());
    if (count == 0) {
      if (promises_gpus(needs_.instance_type)) {
        bad("gpus", fmt::format("none is seen, {} has some", needs_.instance_type),
            "start the container with --gpus all, and NVIDIA's container toolkit on the machine");
      }
      return;
    }
    const std::string what = fmt::format("{} x {}", count, facts_.gpus.front());
    if (torch_ && !torch_->problem && torch_->gpus < count) {
      bad("gpus", fmt::format("{}, of which torch can use {}", what, torch_->gpus),
          "see the driver's line, and CUDA_VISIBLE_DEVICES");
    } else if (needs_.processes_per_host.value_or(0) > count) {
      warn("gpus", fmt::format("{} for {} processes", what, *needs_.processes_per_host),
           "lower sagemaker_mpi_num_of_processes_per_host: processes will share GPUs or fail");
    } else {
      good("gpus", what);
    }
  }

  void judge_nccl() {
    if (facts_.gpus.empty()) return;  // nothing loads it
    const auto& libraries = facts_.nccl_libraries;
    const std::string version = torch_ && !torch_->nccl.empty() ? torch_->nccl + ", " : "";
    if (libraries.size() > 1) {
      warn("nccl",
           fmt::format("{} libraries: {}", libraries.size(), fmt::join(texts(libraries), ", ")),
           "keep the one that came with torch: which of them a process loads depends on its paths");
    } else if (libraries.size() == 1) {
      good("nccl", version + libraries.front().string());
    } else {
      bad("nccl", "libnccl.so is not found", "pip install the nvidia-nccl package of your torch");
    }
  }

  void judge_fabric() {
    const EfaDecision decision = decide_efa({needs_.instance_type}, facts_.efa, needs_.efa);
    if (const auto& problem = decision.problem) {
      findings_.push_back({"fabric",
                           problem->loss == EfaLoss::kNccl ? Health::kWarning : Health::kBad,
                           problem->finding, problem->remedy});
      return;
    }
    if (const auto& others = facts_.efa.other_devices; !others.empty()) {
      good("fabric",
           fmt::format("{}; InfiniBand devices: {}", decision.reason, fmt::join(others, ", ")));
      return;
    }
    good("fabric", decision.enabled ? decision.reason : decision.reason + "; TCP is used");
  }

  void judge_memlock() {
    const bool unlimited = facts_.memlock_bytes == MachineFacts::kUnlimited;
    const std::string what =
        unlimited ? "unlimited" : fmt::format("{} KiB", facts_.memlock_bytes / 1024);
    const bool fabric = !facts_.efa.devices.empty() || !facts_.efa.other_devices.empty();
    if (unlimited || !fabric) {
      good("memlock", unlimited ? what : what + "; only a fabric such as EFA needs more");
    } else {
      bad("memlock", what + " of memory may be locked, the fabric registers all it sends",
          "start the container with --ulimit memlock=-1");
    }
  }

  void judge_shared_memory() {
    constexpr const char* kRemedy = "start the container with --shm-size=2g";
    if (!facts_.shared_memory_bytes) {
      bad("/dev/shm", "not there", kRemedy);
    } else if (*facts_.shared_memory_bytes < kGiB) {
      warn("/dev/shm", in_gib(*facts_.shared_memory_bytes) + ", which data loaders and NCCL use",
           kRemedy);
    } else if (facts_.shared_memory_free_bytes < kGiB / 4) {
      warn("/dev/shm",
           fmt::format("{} of {} are free", in_gib(facts_.shared_memory_free_bytes),
                       in_gib(*facts_.shared_memory_bytes)),
           "remove what earlier jobs left in /dev/shm");
    } else {
      good("/dev/shm", in_gib(*facts_.shared_memory_bytes));
    }
  }

  void judge_disk(const DiskSpace& disk) {
    constexpr std::uint64_t kFewFiles = 10000;
    const std::string subject = "disk";
    const std::string what =
        fmt::format("{}: {} free", disk.path.string(), in_gib(disk.free_bytes));
    if (!disk.writable) {
      bad(subject, fmt::format("{} is not writable", disk.path.string()),
          "results and markers go there: mount it writable for this user");
    } else if (disk.free_bytes < 64 * kMiB) {
      bad(subject, what, "free some space, or mount a larger volume there");
    } else if (disk.free_bytes < 2 * kGiB) {
      warn(subject, what, "checkpoints may not fit: mount a larger volume there");
    } else if (disk.free_files < kFewFiles) {
      warn(subject, fmt::format("{}, but only for {} more files", what, disk.free_files),
           "remove files, or make the file system with more inodes");
    } else {
      good(subject, what);
    }
  }

  const MachineFacts& facts_;
  const std::optional<TorchFacts>& torch_;
  const MachineNeeds& needs_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text +=
        fmt::format("{:<8} {:<16} {}\n", word(finding.health), finding.subject, finding.finding);
    if (!finding.remedy.empty()) text += fmt::format("{:<25} -> {}\n", "", finding.remedy);
  }
  return text;
}

std::string findings_json(const std::vector<Finding>& findings) {
  constexpr int kIndent = 2;
  opt_ml::Value::List list;
  for (const Finding& finding : findings) {
    opt_ml::Value row = opt_ml::Value::Object{};
    row.set("subject", finding.subject);
    row.set("health", word(finding.health));
    row.set("finding", finding.finding);
    row.set("remedy", finding.remedy);
    list.push_back(std::move(row));
  }
  opt_ml::Value result = opt_ml::Value::Object{};
  result.set("healthy", findings_exit_code(findings) == 0);
  result.set("findings", std::move(list));
  return opt_ml::to_json_indented(result, kIndent) + "\n";
}

int findings_exit_code(const std::vector<Finding>& findings) {
  const bool bad = std::ranges::any_of(
      findings, [](const Finding& finding) { return finding.health == Health::kBad; });
  return bad ? 1 : 0;
}

std::vector<Finding> judge_machine(const MachineFacts& facts,
                                   const std::optional<TorchFacts>& torch,
                                   const MachineNeeds& needs) {
  return Judge(facts, torch, needs).judge();
}

}  // namespace entrypoint
