// SPDX-License-Identifier: Apache-2.0
// Groups of c10d in a process without Python: over our own backend, for the headers of Gloo's do
// not come with torch.
#pragma once

#include "smp_runtime/session/groups.h"
#include "smp_runtime/session/job_store.h"

namespace smp::api {

/// Makes groups that c10d knows by their names, of any backend of ours: "smddp". `rank` is this
/// rank of the job, `store` the job's.
session::MakeGroup group_maker(session::StorePtr store, int rank);

}  // namespace smp::api
