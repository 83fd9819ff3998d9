// SPDX-License-Identifier: Apache-2.0
// Files of torch.save: a pickle, and the storages that it refers to by number.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "smp_runtime/checkpoint/atomic_file.h"

namespace smp::checkpoint {

/// The file is there whole or not at all. Holds no lock of Python. Throws HostError.
FileDigest write_archive(const std::filesystem::path& path, std::string_view pickle,
                         std::span<const std::span<const std::byte>> storages);

}  // namespace smp::checkpoint
