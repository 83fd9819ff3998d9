// SPDX-License-Identifier: Apache-2.0
// The environment as a value. It is read in one place per run and passed on.
#pragma once

#include "smp_runtime/core/variables.h"

namespace entrypoint {

using EnvironmentMap = smp::Variables;

using smp::value_or;

}  // namespace entrypoint
