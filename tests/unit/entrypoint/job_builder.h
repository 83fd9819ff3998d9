// SPDX-License-Identifier: Apache-2.0
// `a_job()` and `a_machine()`: values for tests of the plan, with no file and no machine behind.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/host_facts.h"
#include "opt_ml_layout/json_document.h"

namespace entrypoint {

class JobBuilder {
 public:
  JobBuilder() {
    files_.resources.current_host = "algo-1";
    files_.resources.hosts = {"algo-1"};
    parameters_.set("sagemaker_program", "train.py");
    code_.entries = {"train.py"};
    code_.entry_point_exists = true;
    code_.entry_point_in_package = true;
  }

  JobBuilder with_hosts(std::vector<std::string> hosts) {
    files_.resources.hosts = std::move(hosts);
    return *this;
  }
  /// An engine says the hosts, in place of a file.
  JobBuilder on_cluster(const ClusterJob& cluster) {
    files_.resources = make_resources(cluster, "launcher");
    files_.cluster = cluster;
    files_.hosts_by_cluster = true;
    return *this;
  }
  JobBuilder on_host(std::string host) {
    files_.resources.current_host = std::move(host);
    return *this;
  }
  JobBuilder with_group(std::string name, std::vector<std::string> hosts,
                        std::string instance_type = "ml.x") {
    files_.resources.groups.push_back(
        {std::move(name), std::move(instance_type), std::move(hosts)});
    return *this;
  }
  JobBuilder in_group(std::string name) {
    files_.resources.current_group_name = std::move(name);
    return *this;
  }
  JobBuilder on_instance(std::string type) {
    files_.resources.current_instance_type = std::move(type);
    return *this;
  }
  /// As in hyperparameters.json: text is decoded.
  JobBuilder with(std::string name, opt_ml::Value value) {
    parameters_.set(std::move(name), std::move(value));
    return *this;
  }
  JobBuilder with_mpi(int processes_per_host) {
    return with("sagemaker_mpi_enabled", true)
        .with("sagemaker_mpi_num_of_processes_per_host", processes_per_host);
  }
  JobBuilder with_torchrun(int processes_per_host) {
    return with("sagemaker_torch_distributed_enabled", true)
        .with("sagemaker_mpi_num_of_processes_per_host", processes_per_host);
  }
  JobBuilder with_smddp(int processes_per_host) {
    return with("sagemaker_distributed_dataparallel_enabled", true)
        .with("sagemaker_mpi_num_of_processes_per_host", processes_per_host);
  }
  JobBuilder with_variable(std::string name, std::string value) {
    environment_[std::move(name)] = std::move(value);
    return *this;
  }
  JobBuilder with_tensorboard_folder(std::filesystem::path folder) {
    files_.tensorboard_folder = std::move(folder);
    return *this;
  }
  JobBuilder with_channel(const std::string& name) {
    channels_.push_back(name);
    return *this;
  }
  JobBuilder with_entry_point(const std::string& name) {
    code_.entries = {name};
    return with("sagemaker_program", name);
  }
  JobBuilder with_code(CodeFolder code) {
    code_ = std::move(code);
    return *this;
  }

  operator JobConfig() const {
    const opt_ml::Layout layout("/opt/ml");
    JobFiles files = files_;
    files.checkpoints.folder = layout.checkpoints();
    files.hyperparameters = opt_ml::split_hyperparameters(parameters_);
    for (const std::string& name : channels_) {
      files.channels.channels.push_back({name, layout.channel(name)});
      files.channels.document.set(name, opt_ml::Value::Object{});
    }
    smp::Variables environment = environment_;
    environment.emplace("PATH", "/usr/bin");
    JobConfig job = make_job_config(layout, std::move(files), std::move(environment));
    job.program.code = code_;
    return job;
  }

 private:
  JobFiles files_;
  opt_ml::Value parameters_ = opt_ml::Value::Object{};
  smp::Variables environment_;
  std::vector<std::string> channels_;
  CodeFolder code_;
};

inline JobBuilder a_job() { return {}; }

/// Four CPUs, no GPU, eth0, Python with mpi4py and torch, and torchrun.
inline HostFacts a_machine() {
  return {.num_cpus = 4,
          .python = "/usr/bin/python3",
          .has_mpi4py = true,
          .torch_version = "2.11.0+cpu",
          .has_torchrun = true,
          .interfaces = {{.name = "lo", .loopback = true, .addresses = {"127.0.0.1"}},
                         {.name = "eth0", .addresses = {"172.17.0.2"}}},
          .hostname_shim = "/opt/smp/libhostname.so",
          .launcher = "/opt/smp/bin/train"};
}

}  // namespace entrypoint
