// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/make_tree_command.h"

#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/program_options/value_semantic.hpp>

#include "entrypoint/config/option_values.h"
#include "entrypoint/config/shell_text.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

namespace options = boost::program_options;
using Texts = std::vector<std::string>;

options::options_description tree_options() {
  const auto text = [](const char* name) {
    return options::value<std::string>()->value_name(name);
  };
  const auto texts = [](const char* name) {
    return options::value<Texts>()->composing()->value_name(name);
  };
  const auto number = [](const char* name) { return options::value<int>()->value_name(name); };
  options::options_description result = option_list("Options of --make-tree");
  result.add_options()                                                                  //
      ("make-tree", text("DIR"), "where; several hosts get DIR/algo-1, DIR/algo-2, …")  //
      ("hosts", number("N"), "hosts of the job (1)")                                    //
      ("cluster", "name no hosts: Slurm, Kubernetes or AWS Batch will")                 //
      ("code", text("DIR"), "folder with the script")                                   //
      ("program", text("FILE"), "the script, relative to that folder")                  //
      ("channel", texts("NAME=DIR"), "input data; may be repeated")                     //
      ("hyperparameter", texts("NAME=VALUE"), "may be repeated; JSON keeps its type")   //
      ("processes", number("N"), "MPI processes on each host; without it no MPI")       //
      ("mp-parameters", text("JSON"), "settings of the model-parallel library")         //
      ("instance-type", text("TYPE"), "e.g. ml.p4d.24xlarge (local)")                   //
      ("network-interface", text("NAME"), "interface between the hosts (eth0)")         //
      ("link", "link code and channels, so that edits count (one host)")                //
      ("copy", "copy code and channels (several hosts)")                                //
      ("replace", "remove a job tree that is there already");
  return result;
}

std::pair<std::string, std::string> split_pair(const std::string& option, const std::string& text,
                                               std::string_view form) {
  const std::size_t mark = text.find('=');
  if (mark == std::string::npos || mark == 0) {
    throw smp::ConfigError("--{} \"{}\": expected {}; see `train --help`", option, text, form);
  }
  return {text.substr(0, mark), text.substr(mark + 1)};
}

}  // namespace

opt_ml::TreeRequest parse_make_tree(std::span<const std::string> arguments) {
  const OptionValues values(tree_options(), arguments);
  opt_ml::TreeRequest request;
  request.directory = values.get<std::string>("make-tree").value_or("");
  request.hosts = values.get<int>("hosts").value_or(request.hosts);
  request.for_cluster = values.has("cluster");
  if (const auto code = values.get<std::string>("code")) request.code = *code;
  request.program = values.get<std::string>("program");
  request.processes_per_host = values.get<int>("processes");
  request.mp_parameters = values.get<std::string>("mp-parameters");
  request.instance_type = values.get<std::string>("instance-type").value_or(request.instance_type);
  request.network_interface =
      values.get<std::string>("network-interface").value_or(request.network_interface);
  if (values.has("link") && values.has("copy")) {
    throw smp::ConfigError("--link and --copy exclude each other; give one of them");
  }
  if (values.has("link") || values.has("copy")) request.link = values.has("link");
  request.replace = values.has("replace");
  for (const std::string& pair : values.get<Texts>("channel").value_or(Texts{})) {
    request.channels.push_back(split_pair("channel", pair, "NAME=DIR"));
  }
  for (const std::string& pair : values.get<Texts>("hyperparameter").value_or(Texts{})) {
    request.hyperparameters.push_back(split_pair("hyperparameter", pair, "NAME=VALUE"));
  }
  return request;
}

std::string make_tree_help() {
  std::ostringstream out;
  out << tree_options();
  return out.str();
}

void run_make_tree(const opt_ml::TreeRequest& request, std::ostream& out) {
  const std::vector<std::filesystem::path> bases = opt_ml::make_tree(request);
  out << "Made the job tree of " << bases.size() << (bases.size() == 1 ? " host:\n" : " hosts:\n");
  for (const std::filesystem::path& base : bases) out << "  " << base.string() << '\n';
  if (request.code) {
    out << (opt_ml::is_linked(request)
                ? "Its code is linked: an edit of " + request.code->string() + " counts at once.\n"
                : "Its code is a copy: after an edit make the tree again, with --replace.\n");
  }
  if (request.mp_parameters && !request.processes_per_host) {
    out << "It has mp_parameters and no --processes, so it starts one process and not several "
           "ranks.\n";
  }
  if (bases.size() > 1) {
    out << "Each is the /opt/ml of one host: mount it there in a container of that name.\n";
    return;
  }
  if (request.for_cluster) {
    out << "All hosts use it: name it by SAGEMAKER_BASE_DIR, or mount it as /opt/ml.\n";
    return;
  }
  out << "Run it with: SAGEMAKER_BASE_DIR="
      << shell_quote(std::filesystem::absolute(bases.front()).string()) << " train\n";
}

}  // namespace entrypoint
