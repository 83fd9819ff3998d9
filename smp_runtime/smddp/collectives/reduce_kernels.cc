// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/reduce_kernels.h"

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/reduce_kernels_body.h"

namespace smp::collectives {

size_t part_size_bytes(ElementType type, ReduceOp op) {
  if (op != ReduceOp::kAverage) return size_bytes(type);
  switch (type) {
    case ElementType::kFloat16:
      return sizeof(Float16::Sum);
    case ElementType::kInt8:
    case ElementType::kUint8:
    case ElementType::kInt16:
    case ElementType::kInt32:
      return sizeof(Averaged<int32_t>::Sum);
    case ElementType::kInt64:
      return sizeof(Averaged<int64_t>::Sum);
    default:
      return size_bytes(type);
  }
}

void reduce(ElementType type, ReduceOp op, std::span<const std::byte* const> sources,
            std::byte* destination, size_t count, int divisor, Stage stage) {
  SMP_CHECK(!sources.empty() && divisor >= 1, "{} sources, divisor {}", sources.size(), divisor);
#if defined(__x86_64__)
  static const bool has_avx2 =
      __builtin_cpu_supports("avx2") > 0 && __builtin_cpu_supports("f16c") > 0;
  if (has_avx2) {
    return reduce_avx2(type, op,
                       {sources.data(), sources.size(), destination, count, divisor, stage});
  }
#endif
  reduce_portably(type, op, sources, destination, count, divisor, stage);
}

void reduce_portably(ElementType type, ReduceOp op, std::span<const std::byte* const> sources,
                     std::byte* destination, size_t count, int divisor, Stage stage) {
  reduce_any(type, op, {sources.data(), sources.size(), destination, count, divisor, stage});
}

}  // namespace smp::collectives
