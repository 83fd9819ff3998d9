// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/host_probe.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/statvfs.h>
#include <unistd.h>

#include "entrypoint/doctor/python_packages.h"
#include "entrypoint/network/reachability.h"
#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kResolver{300};

// The output of a tool; empty when it is not there or fails.
std::string output_of(const std::vector<std::string>& argv, const std::string& path) {
  if (find_program(argv.front(), path).empty()) return {};
  const Completed done =
      run_command({.argv = argv, .environment = current_environment()}, kToolLimit);
  if (done.status.ok()) return done.output;
  if (done.timed_out) {
    SMP_LOG(warning, "{} did not answer within {} s, its devices do not count", argv.front(),
            kToolLimit.count());
    return {};
  }
  SMP_LOG(warning, "{} failed (exit {}), its devices do not count: {}", argv.front(),
          done.status.failure_code(), done.output.substr(0, 200));
  return {};
}

/// A container sees the modules of its host.
std::string kernel_module_version(const fs::path& name) {
  std::ifstream file(fs::path("/sys/module") / name / "version");
  std::string version;
  file >> version;
  return version;
}

int probe_neurons(const JobConfig& job, const std::string& path) {
  constexpr int kTrn2Cores = 64;
  const std::string& type = job.files.resources.current_instance_type;
  if (type.find("trn2.48xlarge") != std::string::npos) return kTrn2Cores;
  return count_neuron_cores(output_of({"neuron-ls", "-j"}, path));
}

/// Starts fi_info only where there is reason to expect EFA.
EfaProbe look_for_efa(const JobConfig& job, int num_gpus, const std::string& path) {
  EfaProbe probe = probe_efa();
  probe.has_gpus = num_gpus > 0;
  probe.nccl_plugin = choose_nccl_plugin(job.environment);
  if (should_ask_libfabric(probe, {job.files.resources.current_instance_type}, job.options.efa)) {
    ask_libfabric(path, probe);
  }
  return probe;
}

/// None: it gave no answer in time.
std::optional<std::vector<std::string>> providers_of(std::vector<std::string> argv,
                                                     std::chrono::seconds limit) {
  std::vector<std::string> environment = current_environment();
  // The job's choice of a provider would hide the others from the question.
  std::erase_if(environment,
                [](const std::string& variable) { return variable.starts_with("FI_PROVIDER="); });
  const Completed asked =
      run_command({.argv = std::move(argv), .environment = std::move(environment)}, limit);
  if (asked.timed_out) return std::nullopt;
  // It ends with an error where it finds none.
  return asked.status.ok() ? listed_providers(asked.output) : std::vector<std::string>{};
}

/// mpirun makes what is missing above it.
fs::path nearest_existing(fs::path folder) {
  std::error_code ignored;
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

}  // namespace

int count_gpus(const std::string& list) {
  std::istringstream lines(list);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) count += line.starts_with("GPU ") ? 1 : 0;
  return count;
}

int count_neuron_cores(const std::string& json) {
  const auto devices = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!devices.is_array()) return 0;
  int count = 0;
  for (const auto& device : devices) {
    if (device.is_object()) count += device.value("nc_count", 0);
  }
  return count;
}

fs::path find_hostname_shim(const fs::path& launcher) {
  // Both in an installation (PREFIX/bin, PREFIX/lib/smp) and in a build tree.
  const fs::path shim = launcher.parent_path().parent_path() / "lib" / "smp" / "libsmp_hostname.so";
  std::error_code ignored;
  return fs::exists(shim, ignored) ? shim : fs::path{};
}

HostFacts probe_host(const JobConfig& job) {
  const std::string path = smp::value_or(job.environment, "PATH");
  const bool several_hosts = job.hosts.all.size() > 1;
  const auto other = std::ranges::find_if(
      job.hosts.all, [&](const std::string& host) { return host != job.current_host(); });
  const NameLookup lookup(other == job.hosts.all.end() ? job.current_host() : *other);
  HostFacts facts;
  facts.num_cpus = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  facts.num_gpus = count_gpus(output_of({"nvidia-smi", "--list-gpus"}, path));
  facts.gpu_driver = kernel_module_version("nvidia");
  facts.num_neurons = probe_neurons(job, path);
  facts.python = find_python(job.options.python, path);
  const auto folders = package_folders(facts.python, smp::value_or(job.environment, "PYTHONPATH"));
  facts.has_mpi4py = has_package(folders, "mpi4py");
  facts.has_tensorboard = has_package(folders, "tensorboard");
  facts.torch_version = torch_version(folders);
  facts.has_smddprun = !find_program("smddprun", path).empty();
  facts.has_smddpmprun = !find_program("smddpmprun", path).empty();
  facts.has_torchrun = !find_program("torchrun", path).empty();
  const fs::path mpirun = find_program("mpirun", path);
  facts.has_prterun =
      !mpirun.empty() && !find_program("prterun", mpirun.parent_path().string()).empty();
  facts.interfaces = list_interfaces();
  facts.efa = look_for_efa(job, facts.num_gpus, path);
  facts.launcher = launcher_path();
  facts.hostname_shim = find_hostname_shim(facts.launcher);
  if (struct statvfs memory{}; statvfs("/dev/shm", &memory) == 0) {
    facts.shared_memory_bytes = std::uint64_t{memory.f_blocks} * memory.f_frsize;
  }
  if (several_hosts) {
    if (other != job.hosts.all.end()) facts.route_interface = lookup.route(kResolver);
  } else {
    facts.current_host_resolves = lookup.resolves(kResolver);
  }
  return facts;
}

void ask_libfabric(const std::string& path, EfaProbe& probe, std::chrono::seconds limit) {
  const std::string program = find_program("fi_info", path).string();
  if (program.empty()) return;
  const auto found = providers_of({program, "-p", "efa"}, limit);
  if (!found) return;
  probe.provider = std::ranges::find(*found, "efa") != found->end();
  if (!*probe.provider) probe.providers = providers_of({program}, limit).value_or(probe.providers);
}

std::string choose_nccl_plugin(const smp::Variables& environment) {
  const std::string own = smp::value_or(environment, "NCCL_NET_PLUGIN");
  return own.empty() ? find_nccl_plugin(smp::value_or(environment, "LD_LIBRARY_PATH")).string()
                     : own;
}

fs::path temporary_folder(const smp::Variables& environment) {
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}) {
    if (std::string value = smp::value_or(environment, name); !value.empty()) return value;
  }
  return "/tmp";
}

void try_temporary_folder(std::span<const std::string> argv, const smp::Variables& environment) {
  const auto names_folder = [](const std::string& word) {
    return word.find("tmpdir_base") != std::string::npos;
  };
  if (std::ranges::any_of(argv, names_folder)) return;
  const fs::path folder = temporary_folder(environment);
  std::string trial = (nearest_existing(fs::absolute(folder)) / "smp-trial-XXXXXX").string();
  if (mkdtemp(trial.data()) != nullptr) {
    rmdir(trial.c_str());
    return;
  }
  throw smp::ConfigError(
      "{}: mpirun has to make a folder there, and cannot: {}; set TMPDIR to a folder that can be "
      "written",
      folder.string(), std::strerror(errno));
}

}  // namespace entrypoint
