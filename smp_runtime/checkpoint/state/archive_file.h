// SPDX-License-Identifier: Apache-2.0
// Files of torch.save: a pickle, and the storages that it refers to by number.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "smp_runtime/checkpoint/atomic_file.h"

namespace smp::checkpoint {

/// The file is there whole or not at all. `storages` are bytes; those of a GPU are copied one after
/// the other. Holds no lock of Python. Throws HostError.
FileDigest write_archive(const std::filesystem::path& path, std::string_view pickle,
                         std::span<const at::Tensor> storages);

}  // namespace smp::checkpoint
