// SPDX-License-Identifier: Apache-2.0
// mpirun's options as units that can be compared: Open MPI refuses to start when one MCA parameter
// comes twice, and the official documentation tells users to pass some that the launcher passes,
// too.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "smp_runtime/core/variables.h"

namespace entrypoint {

/// One option with its values.
struct MpiOption {
  std::vector<std::string> words;
  std::string key;  ///< options of one key exclude each other: "mca btl", "x PATH", "map-by"; or ""

  bool operator==(const MpiOption&) const = default;
};

struct CustomMpiOptions {
  std::vector<MpiOption> options;         ///< in the user's order
  std::optional<std::string> nccl_debug;  ///< value of --NCCL_DEBUG, which is ours, not mpirun's
};

/// The source of options, for messages, unless another one is named.
inline constexpr std::string_view kMpiOptionsSource =
    "hyperparameter \"sagemaker_mpi_custom_mpi_options\"";

/// Groups words into options; words it does not know stand for themselves. Throws ConfigError that
/// starts with `source` for an option whose value is missing.
std::vector<MpiOption> group_mpi_options(std::span<const std::string> words,
                                         std::string_view source = kMpiOptionsSource);

/// Splits as a shell does, takes out --NCCL_DEBUG (abbreviations count), groups the rest. Throws
/// ConfigError that starts with `source` for an open quote and for an option whose value is
/// missing.
CustomMpiOptions parse_custom_mpi_options(std::string_view text, const smp::Variables& variables,
                                          std::string_view source = kMpiOptionsSource);

struct MergedMpiOptions {
  std::vector<MpiOption> ours;     ///< those that stay, in order
  std::vector<MpiOption> custom;   ///< the user's, each key once, the last one of equals
  std::vector<std::string> notes;  ///< one line for each of ours that gave way
};

/// The user wins: of options with one key, ours is dropped.
MergedMpiOptions merge_mpi_options(const std::vector<MpiOption>& ours,
                                   const std::vector<MpiOption>& custom);

/// The count of -np (or -n, -c) among the options. Throws ConfigError that starts with `source`
/// when it is no number.
std::optional<int> process_count(const std::vector<MpiOption>& options,
                                 std::string_view source = kMpiOptionsSource);

}  // namespace entrypoint
