// SPDX-License-Identifier: Apache-2.0
// Makes a mock job tree, as the service or the SDK's local mode would lay it out under /opt/ml, so
// that a job runs on any machine: `SAGEMAKER_BASE_DIR=<base> train`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace opt_ml {

/// Description of the job whose tree is made. Only `directory` is required.
struct TreeRequest {
  std::filesystem::path directory;
  int hosts = 1;             ///< algo-1 … algo-N
  bool for_cluster = false;  ///< one tree for all hosts, which the cluster that runs it names

  /// Name and value. A value that is JSON text keeps its type; any other is text, as the SDK sends
  /// it: `epochs=3` is a number, `lr=abc` is text.
  std::vector<std::pair<std::string, std::string>> hyperparameters;
  std::vector<std::pair<std::string, std::filesystem::path>> channels;
  std::optional<std::filesystem::path> code;  ///< folder whose contents become <base>/code
  std::optional<std::string> program;         ///< entry point, relative to the code folder
  std::optional<int> processes_per_host;      ///< given: the job is an MPI job
  std::optional<std::string> mp_parameters;   ///< JSON object of the model-parallel library
  std::string instance_type = "local";
  std::string network_interface = "eth0";
  /// Symbolic links to channels and code (true) or copies (false). Unset: links for one host, so
  /// that an edit counts at the next run; copies for several, whose trees go into containers.
  std::optional<bool> link;
  bool replace = false;  ///< remove a tree that an earlier call made in `directory`
};

/// Copying more than this per channel or code folder is refused; `link` is the way out.
inline constexpr std::uintmax_t kLargestCopyBytes = std::uintmax_t{1} << 30;

/// True if the tree will hold links to channels and code.
bool is_linked(const TreeRequest& request);

/// Writes the tree and returns the base folder of each host, in host order. For one host that is
/// `directory` itself, for several `directory`/algo-1 and so on, each with its own copies. Throws
/// ConfigError for a request that makes no job (no host, a name that is no file name, mp_parameters
/// that is no JSON object), for a source that does not exist, and for a folder that is in use.
/// Throws HostError where it cannot be written, and leaves nothing half done.
std::vector<std::filesystem::path> make_tree(const TreeRequest& request);

}  // namespace opt_ml
