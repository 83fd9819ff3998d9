// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/reduce_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/reduce_kernels_body.h"

namespace smp::collectives {
namespace {

#if defined(__x86_64__)
/// Clang 16 has no name for it in __builtin_cpu_supports.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

}  // namespace

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
  static const bool has_avx2 = __builtin_cpu_supports("avx2") > 0 && has_f16c();
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
