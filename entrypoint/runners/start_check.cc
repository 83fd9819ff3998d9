// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/start_check.h"

#include "entrypoint/config/shell_text.h"
#include "entrypoint/plan/secrets.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {

Outcome run_checked(const LaunchPlan& plan, const Command& command, const ProcessRunner& runner,
                    const std::function<Outcome(const Command&)>& run) {
  if (!plan.check) return run(command);
  Command check = command;
  check.argv = plan.check->argv;
  SMP_LOG(info, "Check before the start: {}", shell_join(mask_secrets(check.argv)));
  Outcome outcome = run(check);
  if (runner.stop_signal() != 0) {
    if (outcome.status.ok()) outcome.status = stopped_status(runner);
    return outcome;
  }
  if (outcome.status.ok()) return run(command);
  if (plan.check->fails_job) return outcome;
  SMP_LOG(warning,
          "The check before the start failed, and the job goes on; SM_LAUNCH_CHECK=strict would "
          "have ended it");
  return run(command);
}

}  // namespace entrypoint
