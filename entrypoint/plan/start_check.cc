// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/start_check.h"

#include <string_view>

#include <fmt/format.h>

#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::string_view kModule = "smdistributed.check";
constexpr std::string_view kOutliers = "outliers";  // --outliers report|fail
constexpr std::string_view kReport = "report";
constexpr std::string_view kFail = "fail";

}  // namespace

EntryPoint check_entry_point() {
  return {.kind = EntryPointKind::kModule,
          .name = "-m " + std::string(kModule),
          .module = std::string(kModule)};
}

std::vector<std::string> check_arguments(CheckPolicy policy) {
  return {"--" + std::string(kOutliers),
          std::string(policy == CheckPolicy::kStrict ? kFail : kReport)};
}

std::string unchecked_warning(const HostFacts& facts) {
  return fmt::format(
      "SM_LAUNCH_CHECK has no effect: {}; set SM_LAUNCH_PYTHON to an interpreter that has torch",
      facts.python.empty() ? "there is no Python" : facts.python.string() + " has no torch");
}

std::string port_beside(const std::string& port) {
  constexpr int kLastPort = 65535;
  const auto number = smp::parse_number<int>(port);
  if (!number) return port;
  return std::to_string(*number < kLastPort ? *number + 1 : *number - 1);
}

JobConfig make_check_job(JobConfig job) {
  job.entry_point = check_entry_point().name;
  job.hyperparameters.user = opt_ml::Value::Object{};
  job.hyperparameters.user.set(std::string(kOutliers), kFail);
  job.options.arguments = ArgumentStyle::kPython;
  job.options.check = CheckPolicy::kOff;
  job.options.report = false;
  job.framework_module.reset();
  job.module_dir = job.layout.code().string();
  job.code = {};
  return job;
}

}  // namespace entrypoint
