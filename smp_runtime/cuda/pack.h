// SPDX-License-Identifier: Apache-2.0
// Neighbouring elements that a thread reads or writes by one instruction. C++17, without Torch and
// CUDA; the same code runs on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "smp_runtime/cuda/lanes.h"

namespace smp::cuda {

template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T items[N];
};

/// Elements in the 16 bytes that are a GPU's widest access. Numbers of 64 bits are for tests alone,
/// and not worth kernels of their own.
template <typename T>
constexpr int kPack = sizeof(T) < 8 ? 16 / static_cast<int>(sizeof(T)) : 1;

/// Number of loads that a thread has in flight.
constexpr int kAtOnce = 4;

/// `from` is aligned for a Pack<T, N>.
template <int N, typename T>
SMP_ON_BOTH Pack<T, N> load(const T* from) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Pack<T, N>) == sizeof(uint4)) {  // or some are read in pieces
    const uint4 bits = *reinterpret_cast<const uint4*>(from);
    Pack<T, N> pack;
    memcpy(&pack, &bits, sizeof(bits));
    return pack;
  }
#endif
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
/// `to` is aligned so, in memory of the device itself.
template <int N, typename T>
SMP_ON_BOTH void store(T* to, const Pack<T, N>& pack) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Pack<T, N>) == sizeof(uint4)) {
    uint4 bits;
    memcpy(&bits, &pack, sizeof(bits));
    // "=" becomes four small stores where a branch is around it.
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w)
                 : "memory");
    return;
  }
#endif
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// True if packs of N may begin at `memory`.
template <int N, typename T>
SMP_ON_BOTH bool begins_pack(const T* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % sizeof(Pack<T, N>) == 0;
}

/// True if rows of `width` elements that begin at `memory` are aligned for packs of N.
template <typename T, int N>
bool holds_packs(std::int64_t width, const void* memory) {
  return width % N == 0 && reinterpret_cast<std::uintptr_t>(memory) % sizeof(Pack<T, N>) == 0;
}

/// Calls use(i, pack) for this lane's packs of a row, `i` the number of the pack's first element.
/// Several are read before the first one is used.
template <int N, typename T, typename Lanes, typename Use>
SMP_ON_BOTH void each_pack(const Lanes& lanes, std::int64_t width, const T* row, const Use& use) {
  const std::int64_t step = lanes.count() * N;
  for (std::int64_t begin = lanes.first() * N; begin < width; begin += kAtOnce * step) {
    Pack<T, N> packs[kAtOnce];
    for (int k = 0; k < kAtOnce; ++k) {
      if (begin + k * step < width) packs[k] = load<N>(row + begin + k * step);
    }
    for (int k = 0; k < kAtOnce; ++k) {
      if (begin + k * step < width) use(begin + k * step, packs[k]);
    }
  }
}

/// One thread's part of a matrix [rows, width] whose columns are treated alike in all rows: a pack
/// of columns from `column` on, in kAtOnce rows. What belongs to the columns is read once.
struct Tile {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t row = 0;   ///< the first one
  std::int64_t step = 1;  ///< from row to row
  std::int64_t column = 0;

  SMP_ON_BOTH bool has(int k) const { return row + k * step < rows; }
  SMP_ON_BOTH std::int64_t row_at(int k) const { return row + k * step; }
  /// Index in the matrix of the pack's first element in row `k`.
  SMP_ON_BOTH std::int64_t place(int k) const { return row_at(k) * width + column; }
};

/// Fewer for a strip: its sums take registers, and more threads hide more than more packs.
constexpr int kAtOnceInStrip = 2;

/// One thread's part of a matrix [rows, width] whose columns are added up on the way: a pack of
/// columns from `column` on, in the rows [begin, end).
struct Strip {
  std::int64_t width = 0;
  std::int64_t number = 0;  ///< of the strips, which lie one below the other
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t column = 0;

  SMP_ON_BOTH bool has(std::int64_t row) const { return row < end; }
  SMP_ON_BOTH std::int64_t place(std::int64_t row) const { return row * width + column; }
};

/// In how many strips a matrix is taken: enough for the threads of a GPU, packs of 8 beside each
/// other, and with rows enough each that what a strip adds up weighs little beside what it reads.
inline std::int64_t strips_of(std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t kElements = std::int64_t{8} << 17;
  constexpr std::int64_t kLeastRows = 64;
  return std::max<std::int64_t>(1, std::min(kElements / width, rows / kLeastRows));
}

}  // namespace smp::cuda
