// SPDX-License-Identifier: Apache-2.0
// The launcher's own settings, all optional: one table of names, defaults and meanings.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/network/efa.h"
#include "smp_runtime/core/variables.h"

// OPTION(type, field, environment variable, default, meaning)
#define ENTRYPOINT_OPTIONS(OPTION)                                                                \
  OPTION(std::string, python, "SM_LAUNCH_PYTHON", "",                                             \
         "interpreter of the user's script; default: the first of python3 and python on PATH")    \
  OPTION(RunnerWish, runner, "SM_LAUNCH_RUNNER", "auto",                                          \
         "what starts the script: mpi, smddp, torchrun, process (one on every host), whatever "   \
         "the hyperparameters say; or auto: what they ask for")                                   \
  OPTION(ArgumentStyle, arguments, "SM_LAUNCH_ARGS", "python",                                    \
         "how hyperparameters reach the script: as arguments --name value, with values as in "    \
         "python (True, [1, 'x']) or json (true, [1,\"x\"]); or as overrides, name=value with "   \
         "JSON, as Hydra reads them")                                                             \
  OPTION(ArgumentOrder, argument_order, "SM_LAUNCH_ARGS_ORDER", "sorted",                         \
         "order of the arguments: sorted by name, or file as in hyperparameters.json")            \
  OPTION(CodePolicy, code, "SM_LAUNCH_CODE", "keep",                                              \
         "code that is there already: keep it, or replace it with sagemaker_submit_directory")    \
  OPTION(std::int64_t, code_max_bytes, "SM_LAUNCH_CODE_MAX_BYTES", "0",                           \
         "most bytes that an archive of code may have, and unpack to; 0: nine tenths of "         \
         "what is free")                                                                          \
  OPTION(std::int64_t, code_max_files, "SM_LAUNCH_CODE_MAX_FILES", "1000000",                     \
         "most files, folders and links that an archive of code may have")                        \
  OPTION(bool, sort_hosts, "SM_LAUNCH_SORT_HOSTS", "0",                                           \
         "1: rank hosts by the number in their names; must be equal on all hosts of a job")       \
  OPTION(EfaSwitch, efa, "SM_LAUNCH_EFA", "auto",                                                 \
         "EFA network: on (a job without a device fails), off, or auto to find out")              \
  OPTION(bool, merge, "SM_LAUNCH_MERGE", "0", "1: the script's stderr goes to stdout")            \
  OPTION(ExitPolicy, exit, "SM_LAUNCH_EXIT", "one",                                               \
         "exit status when the script fails: one, or propagate the script's own")                 \
  OPTION(bool, tolerate_gloo_abort, "SM_LAUNCH_TOLERATE_GLOO_ABORT", "1",                         \
         "0: a script that gloo::EnforceNotMet aborts (status 134) has failed; 1: it counts as "  \
         "ended, as PyTorch's images have it")                                                    \
  OPTION(std::chrono::seconds, stop_after, "SM_LAUNCH_STOP_SECONDS", "110",                       \
         "time between the stop signal and the kill, in seconds; 25 on Slurm, Kubernetes and "    \
         "AWS Batch")                                                                             \
  OPTION(std::int64_t, restarts, "SM_LAUNCH_RESTARTS", "0",                                       \
         "how often the script is started again, on all hosts, when it fails; not after two "     \
         "failures by one exception in a row")                                                    \
  OPTION(std::int64_t, min_hosts, "SM_LAUNCH_MIN_HOSTS", "0",                                     \
         "fewest hosts on which SM_LAUNCH_RESTARTS goes on when others are lost; 0: a lost host " \
         "ends the job")                                                                          \
  OPTION(std::chrono::seconds, grace, "SM_LAUNCH_GRACE_SECONDS", "0",                             \
         "wait after the job's end before hosts leave, in seconds")                               \
  OPTION(std::chrono::seconds, worker_timeout, "SM_LAUNCH_WORKER_TIMEOUT", "900",                 \
         "longest wait for the other hosts at start, in seconds")                                 \
  OPTION(int, ssh_port, "SM_LAUNCH_SSH_PORT", "0",                                                \
         "port of the job's sshd, equal on all hosts; 0: 22, or 2222 for users who may not; on "  \
         "Slurm one of the job")                                                                  \
  OPTION(std::string, ssh_key, "SM_LAUNCH_SSH_KEY", "",                                           \
         "private key file mounted on every host; default: keys are made and exchanged")          \
  OPTION(AuthPolicy, auth, "SM_LAUNCH_AUTH", "allow",                                             \
         "require: hosts that cannot prove by SMP_JOB_SECRET or a mounted key that they are of "  \
         "the job end it; allow: their network is trusted then")                                  \
  OPTION(std::string, secrets, "SM_LAUNCH_SECRETS", "",                                           \
         "words, separated by commas: a name that holds one of them says that its value is "      \
         "secret, as names with PASSWORD or TOKEN do")                                            \
  OPTION(bool, report, "SM_LAUNCH_REPORT", "1",                                                   \
         "ranks and hosts record what they do, and the job ends with a report: report.html in "   \
         "SM_OUTPUT_DATA_DIR; 0: neither")                                                        \
  OPTION(CheckPolicy, check, "SM_LAUNCH_CHECK", "0",                                              \
         "1: before the script starts, ranks measure how fast they compute and reach each "       \
         "other, and the log names outliers; strict: an outlier fails the job")                   \
  OPTION(bool, cluster, "SM_LAUNCH_CLUSTER", "on",                                                \
         "off: what Slurm, Kubernetes or AWS Batch say of the job is not looked at")              \
  OPTION(std::string, extra_ca, "SMP_EXTRA_CA_FILE", "",                                          \
         "PEM file of certificate authorities to trust besides the machine's")                    \
  OPTION(bool, dry_run, "SM_LAUNCH_DRY_RUN", "0",                                                 \
         "1: the same as train --plan --json, where only the environment can be changed")

namespace entrypoint {

enum class RunnerWish { kAuto, kMpi, kSmddp, kTorchrun, kProcess };
enum class ArgumentStyle { kPython, kJson, kOverrides };
enum class ArgumentOrder { kSorted, kFile };
enum class CodePolicy { kKeep, kReplace };
enum class ExitPolicy { kOne, kPropagate };
enum class AuthPolicy { kAllow, kRequire };
enum class CheckPolicy { kOff, kReport, kStrict };

struct LaunchOptions {
#define OPTION_FIELD(type, field, variable, standard, meaning) type field{};
  ENTRYPOINT_OPTIONS(OPTION_FIELD)
#undef OPTION_FIELD
};

/// The table, for --help and the documentation.
std::span<const smp::VariableRow> option_table();

/// Values of the environment, defaults elsewhere; an empty variable counts as unset. Throws
/// ConfigError that names the variable, what it holds and what may stand there.
LaunchOptions read_options(const smp::Variables& environment);

/// One sentence for each SM_LAUNCH_ and SMP_EXTRA_ variable that is not in the table, with the
/// nearest that is.
std::vector<std::string> describe_unknown_options(const smp::Variables& environment);

}  // namespace entrypoint
