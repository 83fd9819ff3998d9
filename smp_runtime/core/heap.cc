// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/heap.h"

#include <malloc.h>

namespace smp {

int64_t heap_bytes() {
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<int64_t>(heap.uordblks + heap.hblkhd);  // of arenas, and mapped by themselves
}

}  // namespace smp
