// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/collectives/reduce_kernels.h"

#include "smp_runtime/collectives/reduce_kernels_avx2.h"
#include "smp_runtime/collectives/reduce_kernels_body.h"
#include "smp_runtime/core/error.h"

namespace smp::collectives {

void reduce(ElementType type, ReduceOp op, std::span<const std::byte* const> sources,
            std::byte* destination, size_t count, int divisor) {
  SMP_CHECK(!sources.empty() && divisor >= 1, "{} sources, divisor {}", sources.size(), divisor);
#if defined(__x86_64__)
  static const bool has_avx2 =
      __builtin_cpu_supports("avx2") > 0 && __builtin_cpu_supports("f16c") > 0;
  if (has_avx2) {
    return reduce_avx2(type, op, sources.data(), sources.size(), destination, count, divisor);
  }
#endif
  reduce_portably(type, op, sources, destination, count, divisor);
}

void reduce_portably(ElementType type, ReduceOp op, std::span<const std::byte* const> sources,
                     std::byte* destination, size_t count, int divisor) {
  reduce_any(type, op, {sources.data(), sources.size(), destination, count, divisor});
}

}  // namespace smp::collectives
