// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint in parts, read into a SavedState, and whether they are complete and fit
// a model of a program in C++.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/ivalue.h>

#include "smp_runtime/api/optimizer_fields.h"
#include "smp_runtime/checkpoint/state/saved_state.h"

namespace smp::api {

class SavedFolder {
 public:
  /// Reads all files of `folder`, which are compared with their checksums. Throws ConfigError, also
  /// if stages lack files of shards; other stages may be in folders of other hosts.
  explicit SavedFolder(const std::filesystem::path& folder);

  [[nodiscard]] const checkpoint::SavedState& state() const { return state_; }
  [[nodiscard]] const c10::IValue& user_content() const { return user_content_; }

  /// Throws ConfigError if no optimizer of `kind`, PyTorch's name of its class, has its state here.
  void check_kind(const std::string& kind) const;
  /// A parameter, from its master if there is one, or a buffer: of that shape. Throws ConfigError
  /// for a name that is not there, another shape, and elements that no file has.
  [[nodiscard]] at::Tensor value_of(const std::string& name, at::IntArrayRef shape) const;
  /// Throws what value_of() would throw.
  void check_value(const std::string& name, at::IntArrayRef shape) const;
  /// Throws ConfigError for elements of a parameter, from `start` on, whose state of the optimizer
  /// no file has, and if the file of the parameter's stage is missing.
  void check_state(const std::string& name, std::int64_t start, std::int64_t elements) const;

 private:
  /// The files of a pipeline stage.
  struct Stage {
    bool has_state = false;        ///< of the optimizer, by whole parameters
    std::int64_t shards = 0;       ///< files of sharded or 16-bit state
    std::int64_t shard_group = 0;  ///< how many there were
  };

  void read_model(const std::filesystem::path& file, const std::string& stage);
  void read_optimizer(const std::filesystem::path& file, Stage& stage, bool is_shard);
  [[nodiscard]] bool has_settings_of(const std::string& kind) const;
  void check_shards() const;
  void check_shape(const std::string& name, at::IntArrayRef saved, at::IntArrayRef own) const;

  checkpoint::SavedState state_;
  checkpoint::Shapes shapes_;                    ///< of entries
  std::map<std::string, std::string> stage_of_;  ///< of entries, by name
  std::map<std::string, Stage> stages_;          ///< by "PP_TP", or "" where names say neither
  std::string optimizer_file_;  ///< one that the manifest lists; empty if it lists none
  c10::IValue user_content_;
};

/// Settings of a group as torch::optim has them.
GroupSettings settings_of(const checkpoint::SavedGroup& group);

/// State of a parameter or run as torch::optim keeps it.
ParameterState state_from(const std::map<std::string, c10::IValue>& saved);

}  // namespace smp::api
