// SPDX-License-Identifier: Apache-2.0
// What the files of a checkpoint in parts hold, whatever job wrote them: see "Checkpoints" in
// docs/reference/file_formats.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>

#include "smp_runtime/api/optimizer_fields.h"
#include "smp_runtime/sharding/torch_free/loss_scaler.h"

namespace smp::api {

/// Keys of files.
inline constexpr const char* kPartialKey = "_smp_is_partial";
inline constexpr const char* kNamesKey = "_smp_parameter_names";
inline constexpr const char* kKindKey = "_smp_optimizer";
inline constexpr const char* kMaster = "master";

/// Elements of a parameter, from `start` on.
struct SavedRun {
  std::int64_t start = 0;
  at::Tensor values;  ///< flat

  /// The part of the `elements` elements from `from` on that it holds, as begin and end; empty if
  /// the end is not above the begin.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> within(std::int64_t from,
                                                             std::int64_t elements) const {
    return {std::max(start, from), std::min(start + values.numel(), from + elements)};
  }
};

struct SavedParameter {
  std::vector<std::int64_t> shape;                    ///< empty where the file does not say
  std::map<std::string, std::vector<SavedRun>> runs;  ///< of the master, and of the optimizer's
  std::optional<double> step;
};

struct SavedEntry {
  at::Tensor values;
  std::string stage;  ///< whose file has it
};

/// The files of a pipeline stage.
struct SavedStage {
  bool has_state = false;        ///< of the optimizer, by whole parameters
  std::int64_t shards = 0;       ///< files of flat state
  std::int64_t shard_group = 0;  ///< how many there were
};

struct SavedGroup {
  GroupSettings settings;
  std::vector<std::string> names;  ///< of its parameters
};

class SavedState {
 public:
  /// Reads all files of `folder`, which are compared with their checksums. Throws ConfigError, also
  /// if stages lack files of shards; other stages may be in folders of other hosts.
  explicit SavedState(const std::filesystem::path& folder);

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const std::vector<SavedGroup>& groups() const { return groups_; }
  [[nodiscard]] const std::optional<sharding::LossScaler::State>& loss_scale() const {
    return loss_scale_;
  }
  [[nodiscard]] const c10::IValue& user_content() const { return user_content_; }

  /// Throws ConfigError if no optimizer of `kind`, PyTorch's name of its class, has its state here.
  void check_kind(const std::string& kind) const;

  /// A parameter, from its master if there is one, or a buffer: of that shape. Throws ConfigError
  /// for a name that is not there, another shape, and elements that no file has.
  [[nodiscard]] at::Tensor value_of(const std::string& name, at::IntArrayRef shape) const;
  /// Throws what value_of() would throw.
  void check_value(const std::string& name, at::IntArrayRef shape) const;
  /// Names of the optimizer's tensors of a parameter.
  [[nodiscard]] std::vector<std::string> state_names(const std::string& name) const;
  [[nodiscard]] std::optional<double> step_of(const std::string& name) const;
  /// `elements` of such a tensor from `start` on, flat. Throws as value_of().
  [[nodiscard]] at::Tensor run_of(const std::string& name, const std::string& key,
                                  std::int64_t start, std::int64_t elements) const;
  /// Throws what run_of() would throw for any of these tensors, and ConfigError if the file of the
  /// parameter's stage is missing.
  void check_state(const std::string& name, std::int64_t start, std::int64_t elements) const;

 private:
  void read_model(const std::filesystem::path& file, const std::string& stage);
  void read_plain(const std::filesystem::path& file);
  void read_flat(const std::filesystem::path& file, SavedStage& stage);
  [[nodiscard]] bool has_settings_of(const std::string& kind) const;
  void check_shards() const;
  void check_shape(const std::string& name, at::IntArrayRef saved, at::IntArrayRef own) const;
  void check_run(const std::string& name, const std::string& key, std::int64_t start,
                 std::int64_t elements) const;
  /// Null if it has none.
  [[nodiscard]] const SavedParameter* with_master(const std::string& name) const;

  std::string where_;
  std::map<std::string, SavedEntry> entries_;  ///< of the models' files
  std::map<std::string, SavedParameter> parameters_;
  std::map<std::string, SavedStage> stages_;  ///< by "PP_TP", or "" where names say neither
  std::string optimizer_file_;  ///< one that the manifest lists; empty if it lists none
  std::string kind_;            ///< of the optimizer; empty where no file has its state
  std::vector<SavedGroup> groups_;
  std::optional<sharding::LossScaler::State> loss_scale_;
  c10::IValue user_content_;
};

}  // namespace smp::api
