// SPDX-License-Identifier: Apache-2.0
// The state of a model and of its optimizer as it was saved, whatever job wrote it: see
// "Checkpoints" in docs/reference/file_formats.md.
//
// Takes objects as they were read, with one reader for each form of them; restoring asks it for
// runs of elements, by parameter and field, as the own layout has them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>

#include "smp_runtime/checkpoint/state/objects.h"
#include "smp_runtime/sharding/torch_free/loss_scaler.h"

namespace smp::checkpoint {

/// Keys of files.
inline constexpr const char* kPartialKey = "_smp_is_partial";
inline constexpr const char* kNamesKey = "_smp_parameter_names";
inline constexpr const char* kKindKey = "_smp_optimizer";
inline constexpr const char* kMastersKey = "_smp_masters";
inline constexpr const char* kMaster = "master";
inline constexpr std::int64_t kNewestPartFormat = 2;

/// Elements of a parameter's field, from `start` on.
struct SavedRun {
  std::int64_t start = 0;
  at::Tensor values;  ///< flat
};

struct SavedParameter {
  std::optional<std::vector<std::int64_t>> shape;     ///< none where no file says it
  std::vector<SavedRun> master;                       ///< the weight in full precision
  std::map<std::string, std::vector<SavedRun>> runs;  ///< of the optimizer, one value an element
  std::map<std::string, c10::IValue> others;          ///< of the optimizer besides: counters
};

/// A group of the optimizer.
struct SavedGroup {
  std::map<std::string, c10::IValue> settings;
  std::vector<std::string> names;  ///< of its parameters
};

/// The value, a tensor as a copy: parameters that were stepped together had the same counter.
c10::IValue alone(const c10::IValue& value);

/// Shapes of parameters by name.
using Shapes = std::map<std::string, std::vector<std::int64_t>>;

/// One thread at a time.
class SavedState {
 public:
  /// Errors begin with `where`, the place that is read.
  explicit SavedState(std::string where) : where_(std::move(where)) {}

  // --- Readers. They throw ConfigError for what is no such object. ---

  /// A file of a model's entries. Of `tied` parameters, by their other names, the first versions
  /// did not save those: they are taken where the file does not have its own.
  void add_model(const ObjectReader& object, const std::map<std::string, std::string>& tied = {});
  /// State of an optimizer in any form: a part of sharded or 16-bit state, a list of such parts,
  /// or a state dict over whole parameters. Parameters of the last have the names in it, else
  /// `names`, else "#" and their number; by their `shapes` values for each element are told from
  /// others.
  void add_optimizer(const ObjectReader& object, const std::vector<std::string>& names = {},
                     const Shapes& shapes = {});
  /// Takes from the state of another tensor rank what this lacks: tensor ranks share it then.
  void complete_with(const SavedState& other);

  // --- What was read ---

  [[nodiscard]] const std::string& where() const { return where_; }
  /// Entries of the model: tensors, and in Python's files any other objects.
  [[nodiscard]] const std::map<std::string, c10::IValue>& entries() const { return entries_; }
  /// Names of entries and of parameters, in the order in which files have them.
  [[nodiscard]] const std::vector<std::string>& entry_names() const { return entry_names_; }
  [[nodiscard]] const std::vector<std::string>& parameter_names() const { return parameter_names_; }
  /// True if the files of the model leave values to shards.
  [[nodiscard]] bool has_values_in_shards() const { return values_in_shards_; }
  /// Other names of parameters whose values only shards have, with the first one.
  [[nodiscard]] const std::map<std::string, std::string>& tied() const { return tied_; }
  [[nodiscard]] const std::map<std::string, SavedParameter>& parameters() const {
    return parameters_;
  }
  /// State that an optimizer keeps for no parameter, by its key.
  [[nodiscard]] const std::map<std::string, c10::IValue>& common() const { return common_; }
  [[nodiscard]] const std::vector<SavedGroup>& groups() const { return groups_; }
  /// The class of the optimizer; empty where no file says it.
  [[nodiscard]] const std::string& kind() const { return kind_; }
  [[nodiscard]] const std::optional<sharding::LossScaler::State>& loss_scale() const {
    return loss_scale_;
  }
  /// Number of parts of sharded or 16-bit state that were read, and of ranks that shared it.
  [[nodiscard]] std::int64_t parts() const { return parts_; }
  [[nodiscard]] std::int64_t sharers() const { return sharers_; }
  /// True for one part where other ranks have the rest.
  [[nodiscard]] bool is_one_of_several() const { return parts_ == 1 && shared_; }
  /// True if parameters that the optimizer does not step are left out.
  [[nodiscard]] bool is_of_optimizer() const { return of_optimizer_; }

  /// `elements` of the master of a parameter from `start` on, or of what the optimizer keeps for it
  /// by `field`, flat. Throws ConfigError for elements that no file has.
  [[nodiscard]] at::Tensor master_of(const std::string& name, std::int64_t start,
                                     std::int64_t elements) const;
  [[nodiscard]] at::Tensor run_of(const std::string& name, const std::string& field,
                                  std::int64_t start, std::int64_t elements) const;
  /// Throws what run_of() would throw for any field, and with `field` kMaster master_of().
  void check_run(const std::string& name, const std::string& field, std::int64_t start,
                 std::int64_t elements) const;
  [[nodiscard]] bool has_master(const std::string& name) const;
  /// All masters, with their names in the order of the files, in the parameters' shapes.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> whole_masters() const;
  /// All that the optimizer keeps of a parameter, in the parameter's shape, and what else.
  [[nodiscard]] std::map<std::string, c10::IValue> whole_state(const std::string& name) const;

 private:
  void add_part(const ObjectReader& part);
  void add_whole(const ObjectReader& object, const std::vector<std::string>& names,
                 const Shapes& shapes);
  SavedParameter& named(const std::string& name);
  void add_loss_scale(const ObjectReader& object);
  void add_group(std::size_t number, const ObjectReader& group, std::vector<std::string> names);
  [[nodiscard]] at::Tensor joined(const std::vector<SavedRun>& runs, const std::string& name,
                                  const std::string& field, std::int64_t start,
                                  std::int64_t elements) const;
  void check_complete(const std::vector<SavedRun>& runs, const std::string& name,
                      const std::string& field, std::int64_t start, std::int64_t elements) const;

  std::string where_;
  std::map<std::string, c10::IValue> entries_;
  std::vector<std::string> entry_names_;
  bool values_in_shards_ = false;
  std::map<std::string, std::string> tied_;
  std::map<std::string, SavedParameter> parameters_;
  std::vector<std::string> parameter_names_;
  std::map<std::string, c10::IValue> common_;
  std::vector<SavedGroup> groups_;
  std::string kind_;
  std::optional<sharding::LossScaler::State> loss_scale_;
  std::int64_t parts_ = 0;
  std::int64_t sharers_ = 1;
  bool shared_ = false;
  bool of_optimizer_ = true;
};

}  // namespace smp::checkpoint
