// SPDX-License-Identifier: Apache-2.0
// Long files, read beside the thread that looks at what is in them.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace smp::checkpoint {

/// Calls `take` with what `file`, which is open, holds from its begin on, in order. Meanwhile
/// threads read what follows: one alone is busy with finding pages for it. Returns 0, or the errno
/// of what failed.
[[nodiscard]] int read_blocks(int file,
                              const std::function<void(std::span<const std::byte>)>& take);

}  // namespace smp::checkpoint
