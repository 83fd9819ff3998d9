// SPDX-License-Identifier: Apache-2.0
// How files of metrics are written: each call opens, writes and closes one, so that what a step has
// told is there when the job is killed. Nothing is synchronised with the disk, for steps would wait
// for that (checkpoint/atomic_file.h does).
#pragma once

#include <filesystem>
#include <string_view>

namespace smp::metrics {

/// Puts `text` behind what the file holds; makes the file, not its folder. Throws HostError with
/// the path and the system's reason.
void append_text(const std::filesystem::path& path, std::string_view text);

/// Makes the file hold `text` alone. Its readers see what it held before or the whole text. Throws
/// HostError as above; the file is as it was then.
void replace_text(const std::filesystem::path& path, std::string_view text);

}  // namespace smp::metrics
