// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cluster/cluster_job.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/cluster/host_list.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::cluster {
namespace {

constexpr const char* kHostfile = "OMPI_MCA_orte_default_hostfile";
constexpr const char* kUsualHostfile = "/etc/mpi/hostfile";
constexpr const char* kRole = "K_MPI_JOB_ROLE";

/// Reads the variables of one engine; its errors name the job.
class Reader {
 public:
  Reader(const Variables& variables, std::string job)
      : variables_(variables), job_(std::move(job)) {}

  [[nodiscard]] std::string text(std::string_view name) const { return value_or(variables_, name); }
  [[nodiscard]] bool has(std::string_view name) const { return !text(name).empty(); }
  [[nodiscard]] std::string required(std::string_view name) const {
    if (!has(name)) {
      throw ConfigError("{}: {} is not set; let the engine's variables into the container", job_,
                        name);
    }
    return text(name);
  }
  [[nodiscard]] std::optional<int> number(std::string_view name) const {
    const std::string found = text(name);
    if (found.empty()) return std::nullopt;
    const auto value = parse_number<int>(found);
    if (!value || *value < 0) {
      throw ConfigError("{}: {} is \"{}\"; expected a number", job_, name, found);
    }
    return value;
  }
  [[nodiscard]] int required_number(std::string_view name) const {
    static_cast<void>(required(name));
    return *number(name);
  }
  [[nodiscard]] const std::string& job() const { return job_; }

  void check_number(int number, int count, std::string_view variable) const {
    if (number < count) return;
    throw ConfigError("{}: {} is {}, and the job has {} hosts; expected a number below that", job_,
                      variable, number, count);
  }

 private:
  const Variables& variables_;
  std::string job_;
};

/// Throws ConfigError unless two sources give the same number of hosts.
void check_equal(const Reader& reader, std::string_view first, std::size_t one,
                 std::string_view second, std::size_t other) {
  if (one == other) return;
  throw ConfigError(
      "{}: {} is of {} hosts and {} of {}; they are of different jobs, so start it with the "
      "variables and files of one",
      reader.job(), first, one, second, other);
}

ClusterJob read_slurm(const Variables& variables) {
  const Reader reader(variables, fmt::format("Slurm job {}", variables.at("SLURM_JOB_ID")));
  // The batch script has variables of its allocation alone, whatever the step's may be called.
  const bool step = reader.has("SLURM_STEP_NUM_TASKS");
  const char* list = step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  ClusterJob job{.cluster = Cluster::kSlurm, .name = reader.job(), .reason = list};
  job.hosts = expand_host_list(reader.required(list), list);
  job.host_count = static_cast<int>(job.hosts.size());
  const char* count = step ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES";
  if (const auto nodes = reader.number(count)) {
    check_equal(reader, list, job.hosts.size(), count, *nodes);
  }
  job.main_host = job.hosts.front();
  job.restarts = reader.number("SLURM_RESTART_COUNT").value_or(0);
  job.whole = step || job.host_count == 1;
  if (step) check_pmix(variables);
  const auto number = reader.number("SLURM_NODEID");
  if (!step && !number) return job;  // the shell of `salloc` may be on no node
  job.host_number = number ? *number : reader.required_number("SLURM_NODEID");
  reader.check_number(*job.host_number, job.host_count, "SLURM_NODEID");
  const std::string own = reader.text("SLURMD_NODENAME");
  if (!own.empty() && own != job.hosts[*job.host_number]) {
    throw ConfigError(
        "{}: SLURMD_NODENAME is {}, yet number {} of {} is {}; the variables are of two jobs",
        reader.job(), own, *job.host_number, list, job.hosts[*job.host_number]);
  }
  if (!step) return job;
  constexpr const char* kTasks = "SLURM_STEP_TASKS_PER_NODE";
  if (reader.has(kTasks)) {
    job.tasks = expand_counts(reader.text(kTasks), kTasks);
    check_equal(reader, list, job.hosts.size(), kTasks, job.tasks.size());
  }
  return job;
}

int slots_of(std::string_view word, std::string_view line, const std::string& file) {
  const auto slots = parse_number<int>(word);
  if (!slots || *slots < 1) {
    throw ConfigError("{}: \"{}\"; expected lines such as \"host slots=2\"", file, line);
  }
  return *slots;
}

/// Lines "NAME", "NAME slots=N" or "NAME:N"; "#" begins a comment. Other words are Open MPI's.
void read_hostfile(const std::string& text, const std::string& file, int usual_slots,
                   ClusterJob& job) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name)) continue;
    int slots = usual_slots;
    if (const std::size_t colon = name.find(':'); colon != std::string::npos) {
      slots = slots_of(std::string_view(name).substr(colon + 1), line, file);
      name.resize(colon);
    }
    constexpr std::string_view kSlots = "slots=";
    for (std::string word; words >> word;) {
      if (word.starts_with(kSlots)) {
        slots = slots_of(std::string_view(word).substr(kSlots.size()), line, file);
      }
    }
    if (std::ranges::find(job.hosts, name) != job.hosts.end()) {
      throw ConfigError("{}: host \"{}\" is there twice; expected each once", file, name);
    }
    job.hosts.push_back(std::move(name));
    job.tasks.push_back(slots);
  }
  if (job.hosts.empty()) throw ConfigError("{}: names no host; expected one a line", file);
}

/// True if `host`, as a hostfile writes it, is the pod of that name.
bool is_pod(std::string_view host, std::string_view pod) {
  return host.substr(0, host.find('.')) == pod.substr(0, pod.find('.'));
}

ClusterJob read_launcher(const Variables& variables, const std::optional<std::string>& hostfile) {
  const bool mpi_job = variables.contains(kRole);
  const std::string file = hostfile_path(variables);
  const Reader reader(variables, mpi_job ? "MPIJob" : "job of a hostfile");
  if (reader.text(kRole) == "worker") {
    throw ConfigError(
        "MPIJob: this is a worker, whose ranks the launcher starts over ssh; leave the worker's "
        "command out, so that it runs sshd");
  }
  if (!hostfile) {
    throw ConfigError(
        "{}: there is no {}; the engine mounts it into the launcher, so start `train` there",
        reader.job(), file);
  }
  ClusterJob job{.cluster = Cluster::kHostfile,
                 .name = reader.job(),
                 .reason = mpi_job ? fmt::format("{} and {}", kRole, file) : file};
  read_hostfile(*hostfile, file, reader.number("OMPI_MCA_orte_set_default_slots").value_or(1), job);
  job.host_count = static_cast<int>(job.hosts.size());
  job.main_host = job.hosts.front();
  if (const auto nodes = reader.number("PET_NNODES")) {
    check_equal(reader, file, job.hosts.size(), "PET_NNODES", *nodes);
  }
  const std::string pod = reader.text("HOSTNAME");
  const auto own = std::ranges::find_if(
      job.hosts, [&](const std::string& host) { return !pod.empty() && is_pod(host, pod); });
  if (own != job.hosts.end()) job.host_number = static_cast<int>(own - job.hosts.begin());
  return job;
}

/// The pods of a TrainJob are numbered at the end of their names, NAME-0-2.NAME the third;
/// elsewhere the first alone has a name, and the others none that anybody asks for.
std::vector<std::string> pods_like(const std::string& first, int count) {
  const std::size_t dot = std::min(first.find('.'), first.size());
  const bool numbered = first.substr(0, dot).ends_with("-0");
  std::vector<std::string> hosts = {first};
  for (int i = 1; i < count; ++i) {
    hosts.push_back(numbered ? fmt::format("{}{}{}", first.substr(0, dot - 1), i, first.substr(dot))
                             : fmt::format("node-{}", i));
  }
  return hosts;
}

ClusterJob read_torch(const Variables& variables) {
  const Reader reader(variables, "TrainJob");
  ClusterJob job{.cluster = Cluster::kTorch, .name = reader.job(), .reason = "PET_NNODES"};
  job.host_count = reader.required_number("PET_NNODES");
  if (job.host_count < 1) throw ConfigError("TrainJob: PET_NNODES is 0; expected at least 1");
  job.host_number = job.host_count == 1 ? 0 : reader.required_number("PET_NODE_RANK");
  reader.check_number(*job.host_number, job.host_count, "PET_NODE_RANK");
  job.main_host =
      job.host_count == 1 ? reader.text("PET_MASTER_ADDR") : reader.required("PET_MASTER_ADDR");
  if (job.main_host.empty()) job.main_host = "localhost";
  job.hosts = pods_like(job.main_host, job.host_count);
  const std::string each = reader.text("PET_NPROC_PER_NODE");
  const bool is_count = !each.empty() && each.find_first_not_of("0123456789") == std::string::npos;
  if (is_count) job.tasks.assign(job.host_count, *reader.number("PET_NPROC_PER_NODE"));
  return job;
}

ClusterJob read_batch(const Variables& variables) {
  const std::string id = value_or(variables, "AWS_BATCH_JOB_ID");
  const Reader reader(variables,
                      id.empty() ? "AWS Batch job" : "AWS Batch job " + id.substr(0, id.find('#')));
  constexpr const char* kIndex = "AWS_BATCH_JOB_NODE_INDEX";
  constexpr const char* kMain = "AWS_BATCH_JOB_MAIN_NODE_INDEX";
  ClusterJob job{.cluster = Cluster::kBatch,
                 .name = reader.job(),
                 .reason = "AWS_BATCH_JOB_NUM_NODES",
                 .host_count = reader.required_number("AWS_BATCH_JOB_NUM_NODES")};
  const int index = reader.required_number(kIndex);
  const int main = reader.required_number(kMain);
  if (job.host_count < 1) {
    throw ConfigError("{}: AWS_BATCH_JOB_NUM_NODES is 0; expected at least 1", reader.job());
  }
  reader.check_number(index, job.host_count, kIndex);
  reader.check_number(main, job.host_count, kMain);
  // The main node goes first, the others in the order of their numbers.
  job.host_number = index == main ? 0 : index < main ? index + 1 : index;
  if (index != main) {
    job.main_host = reader.required("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS");
  }
  job.restarts = std::max(reader.number("AWS_BATCH_JOB_ATTEMPT").value_or(1) - 1, 0);
  return job;
}

bool has(const Variables& variables, std::string_view name) {
  return !value_or(variables, name).empty();
}

}  // namespace

std::string ClusterJob::title() const {
  std::string_view noun = cluster == Cluster::kHostfile ? "host" : "node";
  std::string text = fmt::format("{}, {} {}{}", name, host_count, noun, host_count == 1 ? "" : "s");
  if (restarts > 0) fmt::format_to(std::back_inserter(text), ", restart {}", restarts);
  return text;
}

std::optional<int> ClusterJob::tasks_per_host() const {
  const auto most = std::ranges::max_element(tasks);
  return most == tasks.end() ? std::nullopt : std::optional(*most);
}

std::string hostfile_path(const Variables& variables) {
  return value_or(variables, kHostfile, has(variables, kRole) ? kUsualHostfile : "");
}

std::optional<ClusterJob> read_cluster(const Variables& variables,
                                       const std::optional<std::string>& hostfile) {
  if (!hostfile_path(variables).empty()) return read_launcher(variables, hostfile);
  if (has(variables, "AWS_BATCH_JOB_NUM_NODES")) return read_batch(variables);
  if (has(variables, "PET_NNODES")) return read_torch(variables);
  if (has(variables, "SLURM_JOB_ID")) return read_slurm(variables);
  return std::nullopt;
}

void check_pmix(const Variables& variables) {
  if (!has(variables, "PMIX_NAMESPACE")) return;
  // Addresses that the client asks for, one a version of the protocol; servers publish all that
  // they serve, so that containers may have an older or a newer client.
  constexpr std::array kAddresses = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3",
                                     "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"};
  const auto is_served = [&](const char* address) { return has(variables, address); };
  if (std::ranges::any_of(kAddresses, is_served)) return;
  throw ConfigError(
      "Slurm started this process with PMIx {}, which serves none of the versions 2 to 4 that Open "
      "MPI speaks here; use another plugin (srun --mpi=list), or srun --mpi=none unless the script "
      "itself uses MPI: ranks come from Slurm",
      value_or(variables, "PMIX_VERSION", "of an unnamed version"));
}

std::string first_host(const Variables& variables) {
  for (const char* list : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const std::string hosts = value_or(variables, list);
    if (!hosts.empty()) return expand_host_list(hosts, list).front();
  }
  return {};
}

}  // namespace smp::cluster
