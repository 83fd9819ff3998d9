// SPDX-License-Identifier: Apache-2.0
// Sums of arrays, in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "smp_runtime/core/element_type.h"

namespace smp::collectives {

/// Stages of a reduction: all of it at once, or first parts, over the ranks of a host, and then a
/// whole of such parts. See part_size_bytes().
enum class Stage : uint8_t { kWhole, kPart, kParts };

/// destination[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) … / divisor
///
/// Elements of 16 bits are added in 32 bits and rounded once. Integers wrap, but their average does
/// not: it rounds towards zero. A NaN wins over every number, in min and max as well. Truths: sum
/// and max are "or", product and min are "and". The order of the sources and nothing else decides
/// the bits of the result, with every instruction set.
///
/// Pointers are aligned to an element. `destination` may be one of the sources, but must not
/// overlap one otherwise. At least one source. The pair passes check_reducible. Of kPart the
/// destination, and of kParts the sources, have elements of part_size_bytes(); a part is not
/// divided.
void reduce(ElementType type, ReduceOp op, std::span<const std::byte* const> sources,
            std::byte* destination, size_t count, int divisor = 1, Stage stage = Stage::kWhole);

/// An element of what kPart makes. Larger than one of the type for averages of float16 and of
/// integers, whose sums may be beyond the type's largest where the average is not.
[[nodiscard]] size_t part_size_bytes(ElementType type, ReduceOp op);

/// The same in plain C++, whatever the CPU can do: the oracle of tests.
void reduce_portably(ElementType type, ReduceOp op, std::span<const std::byte* const> sources,
                     std::byte* destination, size_t count, int divisor = 1,
                     Stage stage = Stage::kWhole);

/// Arguments of one call of the loops of reduce().
struct Arrays {
  const std::byte* const* sources;
  size_t source_count;
  std::byte* destination;
  size_t count;
  int divisor;
  Stage stage;
};

/// reduce() with AVX2 and F16C; only for CPUs that have both.
void reduce_avx2(ElementType type, ReduceOp op, const Arrays& arrays);

}  // namespace smp::collectives
