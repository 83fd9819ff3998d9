// SPDX-License-Identifier: Apache-2.0
// The version of an older LibTorch, in the bytes in which it says it.
#include <stdint.h>

uint64_t aoti_torch_abi_version(void) {
  return ((uint64_t)2 << 56) | ((uint64_t)9 << 48) | ((uint64_t)1 << 40);
}
