// SPDX-License-Identifier: Apache-2.0
// Table of all variables by which users set options of the runtime.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/variables.h"

namespace smp::cluster {

inline constexpr std::array kRuntimeVariables = {
    VariableRow{"SM_HP_MP_PARAMETERS", "",
                "settings of the job, which have precedence over those of smp.init"},
    VariableRow{"SM_HOSTS", "",
                "the job's hosts; the first is where rank 0 is looked for if nothing else says it"},
    VariableRow{"SMP_JOB_SECRET", "",
                "secret of the job, at least 32 characters, the same on all ranks: they take "
                "nothing from the network that does not prove to know it"},
    VariableRow{"SMP_JOB_SECRET_FILE", "", "file that holds it"},
    VariableRow{"SM_LAUNCH_AUTH", "allow",
                "require: a job on several hosts without a secret is refused"},
    VariableRow{"SM_LOG_LEVEL", "20", "threshold of the log"},
    VariableRow{"SMP_TIMEOUT_SECONDS", "1800",
                "how long ranks wait for each other; long, because ranks may save or evaluate"},
    VariableRow{"SMP_SAVES_UNDER_WAY", "1",
                "how many saves that do not block may be under way: each keeps a copy of the "
                "rank's state in the host's memory"},
    VariableRow{"SMP_CHECKPOINT_MEMORY", "0",
                "so many calls of smp.checkpoint_in_memory apart it keeps a state in the memory of "
                "the hosts, for a restart that reads no disk; 0: never"},
    VariableRow{"SMP_MEMORY_FOLDER", "",
                "folder for it in the memory of this host, which train makes and removes"},
    VariableRow{"SM_RESTART_COUNT", "",
                "how often the ranks were started before: what is in memory at the first start is "
                "another job's, and goes"},
    VariableRow{"TORCHELASTIC_RESTART_COUNT", "", "torchrun's name of it"},
    VariableRow{"SMP_PROGRESS", "on", "the first rank prints a line about steps on stderr"},
    VariableRow{"SMP_METRICS", "", "file for one JSON object per step, from the first rank"},
    VariableRow{"SMP_TENSORBOARD", "", "folder for TensorBoard's event files, from the first rank"},
    VariableRow{"SMP_OPENMETRICS", "",
                "file for the last step in OpenMetrics' text format, from the first rank"},
    VariableRow{"SMP_EMBEDDED_METRICS", "",
                "namespace of metrics that CloudWatch makes of the first rank's lines on stdout"},
    VariableRow{"SAGEMAKER_JOB_NAME", "", "the job's name, by which metrics are told apart"},
    VariableRow{"SMP_IMAGE", "", "the image's version and commit, for the report; it sets this"},
    VariableRow{"SMP_TRACE", "", "folder for the timeline of all steps, one file per host"},
    VariableRow{"SMP_RECORDS", "", "folder for what train --report reads, one file per rank"},
    VariableRow{"SMP_SELF_CHECK", "0",
                "so many steps are computed beside the job in plain PyTorch, and compared"},
    VariableRow{"SMP_PARTITIONER", "auto",
                "auto: the best of all methods; compat: the published algorithm"},
    VariableRow{"SMP_DIRECT_EXCHANGE", "on",
                "results of a remote module that only another remote one uses go straight there"},
    VariableRow{"SMP_NCCL_THROTTLE_LIMIT", "8",
                "how many collectives of tensor parallelism may be in flight on a GPU"},
    VariableRow{"SMP_CPU", "off",
                "without a GPU, what scripts do on CUDA devices is done on the CPU, for debugging"},
    VariableRow{"SMP_DEEPSPEED_COMPAT", "off",
                "names of DeepSpeed that a published script patches can be imported without it"},
};

struct RuntimeOptions {
  std::string parameters;                    ///< SM_HP_MP_PARAMETERS: the job's settings as text
  std::vector<std::string> hosts;            ///< SM_HOSTS, empty outside a job
  std::optional<JobSecret> secret;           ///< SMP_JOB_SECRET, or of SMP_JOB_SECRET_FILE
  bool needs_secret = false;                 ///< SM_LAUNCH_AUTH: require
  log::Level log_level = log::Level::kInfo;  ///< SM_LOG_LEVEL
  std::chrono::milliseconds timeout{};       ///< SMP_TIMEOUT_SECONDS
  int saves_under_way = 1;                   ///< SMP_SAVES_UNDER_WAY
  std::int64_t checkpoint_memory = 0;        ///< SMP_CHECKPOINT_MEMORY; 0: never
  std::string memory_folder;                 ///< SMP_MEMORY_FOLDER; empty: none
  bool starts_again = false;                 ///< SM_RESTART_COUNT or torchrun's is not 0
  bool progress = true;                      ///< SMP_PROGRESS
  std::string metrics_file;                  ///< SMP_METRICS
  std::string tensorboard_folder;            ///< SMP_TENSORBOARD
  std::string openmetrics_file;              ///< SMP_OPENMETRICS
  std::string embedded_metrics;              ///< SMP_EMBEDDED_METRICS: a namespace; empty: none
  std::string job_name;                      ///< SAGEMAKER_JOB_NAME
  std::string image;                         ///< SMP_IMAGE; empty outside it
  std::string trace_folder;                  ///< SMP_TRACE
  std::string record_folder;                 ///< SMP_RECORDS; empty: none
  std::int64_t self_checked_steps = 0;       ///< SMP_SELF_CHECK; Python's programs look at it
  std::string partitioner;                   ///< SMP_PARTITIONER: auto or compat
  bool direct_exchange = true;               ///< SMP_DIRECT_EXCHANGE
  std::int64_t exchanges_under_way = 0;      ///< SMP_NCCL_THROTTLE_LIMIT; -1: any number
  bool exchanges_are_set = false;            ///< and not by default
  bool cuda_on_cpu = false;                  ///< SMP_CPU
  bool deepspeed_names = false;              ///< SMP_DEEPSPEED_COMPAT
  /// Sentences about variables with our prefix that nothing knows.
  std::vector<std::string> warnings;
};

/// Throws ConfigError for a variable that holds what it may not.
RuntimeOptions make_runtime_options(const Variables& variables);

}  // namespace smp::cluster
