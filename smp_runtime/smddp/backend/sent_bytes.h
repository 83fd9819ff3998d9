// SPDX-License-Identifier: Apache-2.0
// Count of the bytes that a group's calls send, for the report of a job.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "smp_runtime/record/traffic.h"

namespace smp::smddp {

/// Bytes to each other rank of `size`, by ring arithmetic: of a gather's input all of it, of other
/// inputs a rank's share, and of sums that share twice.
int64_t sent_to_each(c10d::OpType type, const std::vector<at::Tensor>& inputs, int size);

/// `FOLDER/smddp-RANK-GROUP.jsonl`, where groups count within the process.
std::unique_ptr<record::TrafficRecord> make_traffic_record(const std::string& folder, int rank);

}  // namespace smp::smddp
