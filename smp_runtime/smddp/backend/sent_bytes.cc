// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/sent_bytes.h"

#include <atomic>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "smp_runtime/core/host_name.h"

namespace smp::smddp {

int64_t sent_to_each(c10d::OpType type, const std::vector<at::Tensor>& inputs, int size) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : inputs) bytes += static_cast<int64_t>(tensor.nbytes());
  switch (type) {
    case c10d::OpType::ALLGATHER:
    case c10d::OpType::_ALLGATHER_BASE:
    case c10d::OpType::ALLGATHER_COALESCED:
      return bytes;
    case c10d::OpType::ALLREDUCE:
    case c10d::OpType::ALLREDUCE_COALESCED:
      return 2 * bytes / size;
    default:
      return bytes / size;
  }
}

std::unique_ptr<record::TrafficRecord> make_traffic_record(const std::string& folder, int rank) {
  static std::atomic<int> groups{0};
  return std::make_unique<record::TrafficRecord>(
      fmt::format("{}/smddp-{}-{}.jsonl", folder, rank, groups++), rank, host_name());
}

}  // namespace smp::smddp
