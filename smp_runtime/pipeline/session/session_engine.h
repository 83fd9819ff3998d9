// SPDX-License-Identifier: Apache-2.0
// The pipeline engine of a session: what its settings and its environment say of schedule, order,
// deadlines and records, for models in Python and in C++. How many microbatches a step has is said
// by each step, to Engine::drive.
#pragma once

#include <memory>

#include "smp_runtime/pipeline/engine/engine.h"
#include "smp_runtime/session/session.h"

namespace smp::pipeline {

/// `own` is what the model's language adds: modules, their names, errors, memory in use, the device
/// and, of the server, how threads begin and what interrupts a wait. The rest is set here.
/// Collective over the pipeline group. Throws HostError if a rank does not come.
std::unique_ptr<Engine> make_engine(session::Session& session, EngineOptions own);

}  // namespace smp::pipeline
