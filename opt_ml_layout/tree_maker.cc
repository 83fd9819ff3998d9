// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/tree_maker.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>

#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/outputs.h"
#include "opt_ml_layout/paths.h"
#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/resource_config.h"
#include "smp_runtime/core/error.h"

namespace opt_ml {
namespace {

namespace fs = std::filesystem;

constexpr int kIndent = 2;
constexpr int kMostHosts = 1024;

std::vector<std::string> host_names(int count) {
  std::vector<std::string> names;
  for (int i = 1; i <= count; ++i) names.push_back("algo-" + std::to_string(i));
  return names;
}

/// The text the SDK sends for a value: JSON text as it is, other text in quotes.
std::string encoded(const std::string& value) {
  return try_parse_json(value) ? value : to_json(value);
}

Value hyperparameters(const TreeRequest& request) {
  Value result = Value::Object{};
  const auto set = [&](std::string name, const Value& value) {
    result.set(std::move(name), to_json(value));
  };
  if (request.program) set("sagemaker_program", *request.program);
  set("sagemaker_container_log_level", 20);
  set("sagemaker_job_name", "local-job");
  if (request.processes_per_host) {
    set("sagemaker_mpi_enabled", true);
    set("sagemaker_mpi_num_of_processes_per_host", *request.processes_per_host);
    set("sagemaker_mpi_custom_mpi_options", "");
  }
  if (request.mp_parameters) {
    result.set("mp_parameters", *request.mp_parameters);
    set("sagemaker_distributed_dataparallel_enabled", false);
    set("sagemaker_instance_type", request.instance_type);
  }
  for (const auto& [name, value] : request.hyperparameters) result.set(name, encoded(value));
  return result;
}

Value channel_config(const TreeRequest& request) {
  Value result = Value::Object{};
  for (const auto& [name, folder] : request.channels) {
    Value channel;
    channel.set("TrainingInputMode", "File");
    channel.set("S3DistributionType", "FullyReplicated");
    channel.set("RecordWrapperType", "None");
    result.set(name, channel);
  }
  return result;
}

Value resource_config(const TreeRequest& request, const std::string& current_host) {
  return as_one_group({.current_host = current_host,
                       .hosts = host_names(request.hosts),
                       .network_interface_name = request.network_interface,
                       .current_instance_type = request.instance_type})
      .document;
}

void write_json(const fs::path& file, const Value& value) {
  std::ofstream stream(file);
  stream << to_json_indented(value, kIndent) << '\n';
  stream.close();
  if (!stream) throw smp::HostError("{}: cannot be written: {}", file.string(), strerror(errno));
}

std::uintmax_t size_bytes(const fs::path& folder) {
  std::uintmax_t total = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) total += entry.file_size();
  }
  return total;
}

void check_source(const std::string& what, const fs::path& folder, const TreeRequest& request) {
  if (!fs::is_directory(folder)) {
    throw smp::ConfigError("{} folder {}: no such folder; give the path of an existing folder",
                           what, folder.string());
  }
  const fs::path inside =
      fs::weakly_canonical(request.directory).lexically_relative(fs::canonical(folder));
  if (!inside.empty() && *inside.begin() != "..") {
    throw smp::ConfigError(
        "{} folder {}: the job tree {} would lie inside it; choose a folder elsewhere", what,
        folder.string(), request.directory.string());
  }
  if (is_linked(request)) return;
  const std::uintmax_t bytes = size_bytes(folder);
  if (bytes > kLargestCopyBytes) {
    throw smp::ConfigError("{} folder {}: {} bytes, more than the {} that are copied; add --link",
                           what, folder.string(), bytes, kLargestCopyBytes);
  }
}

void check(const TreeRequest& request) {
  if (request.directory.empty()) throw smp::ConfigError("--make-tree: no folder given");
  if (request.hosts < 1 || request.hosts > kMostHosts) {
    throw smp::ConfigError("--hosts {}: expected 1 to {}", request.hosts, kMostHosts);
  }
  if (request.for_cluster && request.hosts != 1) {
    throw smp::ConfigError(
        "--cluster and --hosts {} exclude each other; the cluster says the hosts", request.hosts);
  }
  if (request.processes_per_host && *request.processes_per_host < 1) {
    throw smp::ConfigError("--processes {}: expected at least 1", *request.processes_per_host);
  }
  if (request.mp_parameters) {
    const std::optional<Value> parameters = try_parse_json(*request.mp_parameters);
    if (!parameters || parameters->object() == nullptr) {
      throw smp::ConfigError(
          "--mp-parameters '{}': expected a JSON object, for example "
          "'{{\"pipeline_parallel_degree\": 2}}'",
          *request.mp_parameters);
    }
  }
  for (const auto& [name, folder] : request.channels) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
      throw smp::ConfigError("--channel {}: not a folder name; use letters, digits and dashes",
                             name);
    }
    const auto same = [&name](const auto& channel) { return channel.first == name; };
    if (std::ranges::count_if(request.channels, same) > 1) {
      throw smp::ConfigError("--channel {}: given twice; a channel is one folder, name each once",
                             name);
    }
    check_source("channel " + name, folder, request);
  }
  if (request.code) check_source("code", *request.code, request);
  const bool of_image = request.program && request.program->starts_with('/');
  if (request.code && request.program && !of_image &&
      !fs::exists(*request.code / *request.program)) {
    throw smp::ConfigError(
        "--program {}: no such file in {}; the path is relative to that folder, or an absolute one "
        "of the image",
        *request.program, request.code->string());
  }
}

bool is_job_tree(const fs::path& base) { return fs::exists(Layout(base).hyperparameters()); }

/// Leaves an empty or absent folder; never removes anything but a job tree.
void clear_directory(const TreeRequest& request) {
  const fs::path& directory = request.directory;
  if (!fs::exists(directory) || fs::is_empty(directory)) return;
  if (!request.replace) {
    throw smp::ConfigError(
        "{}: is not empty; choose another folder, or add --replace to remove the "
        "job tree in it",
        directory.string());
  }
  if (!is_job_tree(directory) && !is_job_tree(directory / "algo-1")) {
    throw smp::ConfigError(
        "{}: is not empty and holds no job tree, so --replace leaves it alone; "
        "choose another folder",
        directory.string());
  }
  // The folder itself may be a mount point.
  for (const auto& entry : fs::directory_iterator(directory)) fs::remove_all(entry.path());
}

void place(const fs::path& source, const fs::path& target, bool link) {
  fs::create_directories(target.parent_path());
  if (link) {
    fs::create_directory_symlink(fs::canonical(source), target);
  } else {
    fs::copy(source, target, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
}

/// Removes a tree that could not be finished.
class Rollback {
 public:
  explicit Rollback(const fs::path& directory)
      : directory_(directory), is_new_(!fs::exists(directory)) {}
  ~Rollback() {
    if (!armed_) return;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(directory_, ignored)) {
      fs::remove_all(entry.path(), ignored);
    }
    if (is_new_) fs::remove(directory_, ignored);
  }
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;

  /// From now on all that the folder holds is ours.
  void arm() { armed_ = true; }
  void disarm() { armed_ = false; }

 private:
  const fs::path& directory_;
  bool is_new_;
  bool armed_ = false;
};

void write_base(const TreeRequest& request, const fs::path& base, const std::string& host) {
  const Layout layout(base);
  fs::create_directories(layout.input_config());
  fs::create_directories(layout.input_data());
  fs::create_directories(layout.checkpoints());
  write_json(layout.hyperparameters(), hyperparameters(request));
  write_json(layout.input_data_config(), channel_config(request));
  if (!request.for_cluster) write_json(layout.resource_config(), resource_config(request, host));
  for (const auto& [name, folder] : request.channels) {
    place(folder, layout.channel(name), is_linked(request));
  }
  if (request.code) place(*request.code, layout.code(), is_linked(request));
  create_job_folders(layout);
}

}  // namespace

bool is_linked(const TreeRequest& request) { return request.link.value_or(request.hosts == 1); }

std::vector<fs::path> make_tree(const TreeRequest& request) {
  check(request);
  std::vector<fs::path> bases;
  Rollback rollback(request.directory);
  try {
    clear_directory(request);
    rollback.arm();
    for (const std::string& host : host_names(request.hosts)) {
      bases.push_back(request.hosts == 1 ? request.directory : request.directory / host);
      write_base(request, bases.back(), host);
    }
  } catch (const fs::filesystem_error& error) {
    throw smp::HostError("the job tree cannot be made: {}", error.what());
  }
  rollback.disarm();
  return bases;
}

}  // namespace opt_ml
