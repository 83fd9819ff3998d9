// SPDX-License-Identifier: Apache-2.0
// `train --plan`: the plan in words, or as one JSON object. Values of secrets are masked.
#pragma once

#include <string>

#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/plan/secrets.h"

namespace entrypoint {

/// make_launch_plan(), with what the job's partition file says. Reads that file.
LaunchPlan plan_to_show(const JobConfig& job, const HostFacts& facts);

/// For people: hosts, ranks, environment, files, and the command quoted so that it can be pasted.
/// Ends in a newline.
std::string plan_text(const LaunchPlan& plan, const Secrets& secrets);

/// For programs: one JSON object, indented; keys are the fields of LaunchPlan. Ends in a newline.
std::string plan_json(const LaunchPlan& plan, const Secrets& secrets);

}  // namespace entrypoint
