// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cluster/runtime_options.h"

#include <limits>

#include <nlohmann/json.hpp>

namespace smp::cluster {
namespace {

/// The launcher's, which carries the library's prefix.
constexpr std::array<std::string_view, 1> kElsewhere{"SMP_EXTRA_CA_FILE"};

/// Variables of the launcher and of the repository's scripts and tests, which are no misspellings.
constexpr std::array<std::string_view, 24> kUnnamed = {
    "SMP_LAUNCH_FOLDER", "SMP_BENCH_HOSTS",    "SMP_ENGINE_ROOT",  "SMP_ENGINE_RUN",
    "SMP_IMAGE",         "SMP_OS_RELEASE",     "SMP_SHM_SIZE",     "SMP_TREE",
    "SMP_FUZZ_ROUNDS",   "SMP_GPU_REHEARSAL",  "SMP_LONG_TESTS",   "SMP_MARK",
    "SMP_MISTAKE_LOAD",  "SMP_MISTAKE_ROUNDS", "SMP_PIP_EXIT",     "SMP_RECORDER",
    "SMP_STUB_RECORDS",  "SMP_SCRIPT",         "SMP_SOAK_MINUTES", "SMP_TEST_FOLDER",
    "SMP_TEST_IMAGE",    "SMP_TEST_MARK",      "SMP_TRAIN",        "SMP_UPDATE_GOLDEN"};

std::vector<std::string> names_of(const VariableSet& set, std::string_view name) {
  const std::string text = set.text(name);
  if (text.empty()) return {};
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> names;
  if (!json.is_array()) set.refuse(name, "a JSON list of names");
  for (const auto& entry : json) {
    if (!entry.is_string()) set.refuse(name, "a JSON list of names");
    names.push_back(entry.get<std::string>());
  }
  return names;
}

bool is_restart(const std::string& count) { return !count.empty() && count != "0"; }

std::int64_t limit_of(const VariableSet& set, std::string_view name) {
  constexpr std::string_view kExpected = "a number of at least 1, or -1 for any number";
  const auto limit = set.whole(name, -1, std::numeric_limits<std::int64_t>::max(), kExpected);
  if (limit == 0) set.refuse(name, kExpected);
  return limit;
}

}  // namespace

RuntimeOptions make_runtime_options(const Variables& variables) {
  constexpr std::string_view kThrottle = "SMP_NCCL_THROTTLE_LIMIT";
  const VariableSet set(kRuntimeVariables, variables);
  return {
      .parameters = set.text("SM_HP_MP_PARAMETERS"),
      .hosts = names_of(set, "SM_HOSTS"),
      .secret = JobSecret::given(variables),
      .needs_secret = set.choice("SM_LAUNCH_AUTH", {"allow", "require"}) == "require",
      .log_level = set.level("SM_LOG_LEVEL"),
      .timeout = std::chrono::milliseconds(
          static_cast<std::int64_t>(set.seconds("SMP_TIMEOUT_SECONDS") * 1000)),
      .saves_under_way = static_cast<int>(set.whole("SMP_SAVES_UNDER_WAY", 1, 8, "1 to 8 saves")),
      .checkpoint_memory =
          set.whole("SMP_CHECKPOINT_MEMORY", 0, std::numeric_limits<std::int64_t>::max(),
                    "how many calls of smp.checkpoint_in_memory apart, 0 for never"),
      .memory_folder = set.text("SMP_MEMORY_FOLDER"),
      .starts_again = is_restart(set.text("SM_RESTART_COUNT")) ||
                      is_restart(set.text("TORCHELASTIC_RESTART_COUNT")),
      .progress = set.flag("SMP_PROGRESS"),
      .metrics_file = set.text("SMP_METRICS"),
      .tensorboard_folder = set.text("SMP_TENSORBOARD"),
      .openmetrics_file = set.text("SMP_OPENMETRICS"),
      .embedded_metrics = set.text("SMP_EMBEDDED_METRICS"),
      .job_name = set.text("SAGEMAKER_JOB_NAME"),
      .image = set.text("SMP_IMAGE"),
      .trace_folder = set.text("SMP_TRACE"),
      .record_folder = set.text("SMP_RECORDS"),
      .self_checked_steps = set.whole("SMP_SELF_CHECK", 0, std::numeric_limits<std::int64_t>::max(),
                                      "how many steps are to be checked, 0 for none"),
      .partitioner = set.choice("SMP_PARTITIONER", {"auto", "compat"}),
      .direct_exchange = set.flag("SMP_DIRECT_EXCHANGE"),
      .exchanges_under_way = limit_of(set, kThrottle),
      .exchanges_are_set = !value_or(variables, kThrottle).empty(),
      .cuda_on_cpu = set.flag("SMP_CPU"),
      .deepspeed_names = set.flag("SMP_DEEPSPEED_COMPAT"),
      .warnings = set.unknown("SMP_", kElsewhere, kUnnamed)};
}

}  // namespace smp::cluster
