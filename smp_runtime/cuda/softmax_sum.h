// SPDX-License-Identifier: Apache-2.0
// The sum of exponentials of a row in one reading of it, safe from overflow. C++17, without Torch
// and CUDA; the same code runs on the CPU.
#pragma once

#include <cmath>

#include "smp_runtime/cuda/lanes.h"
#include "smp_runtime/cuda/quick_math.h"

namespace smp::cuda {

/// Sum of exp(value - top) over numbers of the type T, in the wide type; rescaled whenever a larger
/// number comes (arXiv:1805.02867).
///
/// A NaN among the numbers makes the sum NaN, as do only infinite ones; as torch's softmax.
template <typename T>
struct SoftmaxSum {
  using W = Wide<T>;

  W top = -static_cast<W>(INFINITY);
  W total = 0;  ///< of exp(value - top)

  template <int N>
  SMP_ON_BOTH void add(const W (&values)[N]) {
    W most = values[0];
    for (int j = 1; j < N; ++j) most = values[j] > most ? values[j] : most;
    // Behind a comparison that is false for what is no number, too: that reaches the total below.
    if (most > top) {
      if (total > 0) total *= exp_for<T>(top - most);
      top = most;
    }
    // All were minus infinity so far: each would be exp(0 / 0), and may still count nothing.
    if (top == -static_cast<W>(INFINITY)) {
      for (int j = 0; j < N; ++j) total += values[j] != values[j] ? values[j] : W(0);
      return;
    }
    for (int j = 0; j < N; ++j) total += exp_below_for<T>(values[j], top);
  }

  /// Over all lanes, each of which has the result.
  template <typename Lanes>
  SMP_ON_BOTH void join(const Lanes& lanes) {
    const W all = lanes.largest(top);
    // NaN where all are minus infinity, as torch's softmax.
    total = lanes.sum(total * exp_for<T>(top - all));
    top = all;
  }
};

}  // namespace smp::cuda
