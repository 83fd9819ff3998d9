// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/machine_facts.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "entrypoint/doctor/host_probe.h"
#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kImport{60};

constexpr const char* kTorchQuery = R"(
import json, torch
gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
nccl = ".".join(str(part) for part in torch.cuda.nccl.version()) if gpus else ""
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda or "",
                  "gpus": gpus, "nccl": nccl}))
)";

std::string last_line(std::string_view text) {
  text = smp::trimmed(text);
  return std::string(text.substr(text.rfind('\n') + 1));
}

Completed run(std::vector<std::string> argv, std::chrono::seconds limit) {
  return run_command({.argv = std::move(argv), .environment = current_environment()}, limit);
}

void look_at_gpus(const std::string& path, MachineFacts& facts) {
  facts.gpu_device_nodes = access("/dev/nvidiactl", F_OK) == 0;
  facts.has_nvidia_smi = !find_program("nvidia-smi", path).empty();
  if (!facts.has_nvidia_smi) return;
  const Completed asked =
      run({"nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"}, kToolLimit);
  if (asked.status.ok()) {
    read_gpu_query(asked.output, facts);
  } else {
    facts.driver_problem = asked.timed_out ? "it gives no answer" : last_line(asked.output);
  }
}

std::vector<fs::path> split_path(std::string_view text) {
  std::vector<std::string> folders = smp::split(text, ':');
  std::erase(folders, "");
  return {folders.begin(), folders.end()};
}

/// Files of a folder whose name starts so, each real file once.
void add_libraries(const fs::path& folder, std::string_view start, std::vector<fs::path>& found) {
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(start) || name.find(".so") == std::string::npos) continue;
    std::error_code dangling;
    const fs::path real = fs::canonical(entry->path(), dangling);
    if (!dangling && std::ranges::find(found, real) == found.end()) found.push_back(real);
  }
}

void look_at_libraries(const smp::Variables& environment, const std::vector<fs::path>& packages,
                       MachineFacts& facts) {
  std::vector<fs::path> folders = split_path(smp::value_or(environment, "LD_LIBRARY_PATH"));
  for (const fs::path& package : packages) folders.push_back(package / "nvidia" / "nccl" / "lib");
  for (const char* system : {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu",
                             "/usr/lib/aarch64-linux-gnu", "/usr/local/cuda/lib64"}) {
    folders.emplace_back(system);
  }
  for (const fs::path& folder : folders) {
    add_libraries(folder, "libnccl.so", facts.nccl_libraries);
  }
}

void look_at_fabric(const smp::Variables& environment, MachineFacts& facts) {
  facts.efa = probe_efa();
  facts.efa.has_gpus = !facts.gpus.empty();
  facts.efa.nccl_plugin = choose_nccl_plugin(environment);
  ask_libfabric(smp::value_or(environment, "PATH"), facts.efa);
}

DiskSpace look_at_disk(fs::path folder) {
  std::error_code ignored;
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  DiskSpace disk{.path = folder, .writable = access(folder.c_str(), W_OK) == 0};
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) == 0) {
    disk.free_bytes = std::uint64_t{info.f_bavail} * info.f_frsize;
    // Some file systems have no fixed number of files: they say 0 of 0.
    if (info.f_files > 0) disk.free_files = info.f_favail;
  }
  return disk;
}

}  // namespace

void read_gpu_query(std::string_view output, MachineFacts& facts) {
  std::istringstream lines{std::string(output)};
  std::string line;
  while (std::getline(lines, line)) {
    const std::size_t comma = line.find(", ");
    if (comma == std::string::npos) continue;
    facts.driver_version = line.substr(0, comma);
    facts.gpus.push_back(line.substr(comma + 2));
  }
}

TorchFacts read_torch_query(std::string_view output) {
  const auto answer = nlohmann::json::parse(last_line(output), nullptr, /*allow_exceptions=*/false);
  TorchFacts facts;
  if (!answer.is_object()) {
    facts.problem = last_line(output);
    return facts;
  }
  facts.version = answer.value("version", "");
  facts.cuda = answer.value("cuda", "");
  facts.gpus = answer.value("gpus", 0);
  facts.nccl = answer.value("nccl", "");
  return facts;
}

TorchFacts ask_torch(const fs::path& python) {
  const Completed asked = run({python.string(), "-c", kTorchQuery}, kImport);
  if (asked.timed_out) {
    TorchFacts facts;
    facts.problem = "the import takes over 60 s";
    return facts;
  }
  return read_torch_query(asked.output);
}

MachineFacts look_at_machine(const smp::Variables& environment,
                             const std::vector<fs::path>& packages,
                             const std::vector<fs::path>& folders) {
  MachineFacts facts;
  const std::string path = smp::value_or(environment, "PATH");
  look_at_gpus(path, facts);
  look_at_libraries(environment, packages, facts);
  look_at_fabric(environment, facts);
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    facts.memlock_bytes = limit.rlim_cur;
  }
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) == 0) {
    facts.shared_memory_bytes = std::uint64_t{info.f_blocks} * info.f_frsize;
    facts.shared_memory_free_bytes = std::uint64_t{info.f_bavail} * info.f_frsize;
  }
  for (const fs::path& folder : folders) facts.disks.push_back(look_at_disk(folder));
  return facts;
}

}  // namespace entrypoint
