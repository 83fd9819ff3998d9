// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/saved_folder.h"

#include <algorithm>
#include <optional>
#include <regex>
#include <sstream>
#include <vector>

#include <c10/util/accumulate.h>

#include "smp_runtime/checkpoint/manifest.h"
#include "smp_runtime/checkpoint/staging.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace smp::api {
namespace {

using checkpoint::ObjectReader;
using checkpoint::SavedParameter;

std::string text_of(at::IntArrayRef shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

/// A script may have put anything into it, which need not hinder the rest.
c10::IValue read_user_content(const std::filesystem::path& file) {
  if (std::filesystem::file_size(file) == 0) return {};  // a marker of another tool
  try {
    return checkpoint::read_object(file);
  } catch (const ConfigError& error) {
    SMP_LOG(warning, "the user content is left out: {}", error.what());
    return {};
  }
}

/// The name of a file of a model or of an optimizer, taken apart.
struct PartName {
  bool is_model = false;
  bool is_shard = false;  ///< of the optimizer: sharded or 16-bit state of one rank
  std::string stage;      ///< "PP_TP", or ""
};

/// Nothing for other files.
std::optional<PartName> part_of(const std::string& file) {
  static const std::regex part(
      R"((?:(model)_(?:(\d+_0)|\d+)|optimizer_(?:(\d+_0)(_\d+)?|\d+))\.pt)");
  std::smatch match;
  if (!std::regex_match(file, match, part)) return std::nullopt;
  if (match[1].matched) return PartName{.is_model = true, .stage = match[2]};
  return PartName{.is_shard = match[4].matched || !match[3].matched, .stage = match[3]};
}

}  // namespace

SavedFolder::SavedFolder(const std::filesystem::path& folder) : state_(folder.string()) {
  bool lists_shards = false;
  const std::filesystem::path listed = folder / "manifest.json";
  if (std::filesystem::is_regular_file(listed)) {
    const auto manifest =
        checkpoint::Manifest::from_json(checkpoint::read_file(listed), listed.string());
    if (manifest.degrees.tensor > 1) {
      throw ConfigError(
          "{} was saved with tensor_parallel_degree {}, whose parts C++ programs do not put "
          "together; save it as a whole (partial=False) in Python",
          state_.where(), manifest.degrees.tensor);
    }
    for (const checkpoint::FileDigest& file : manifest.files) {
      // Other hosts have files, too, if each has a folder of its own.
      const std::filesystem::path path = folder / file.name;
      if (std::filesystem::exists(path)) checkpoint::verify_file(path, file);
      const auto part = part_of(file.name);
      if (!part || part->is_model) continue;
      if (optimizer_file_.empty()) optimizer_file_ = file.name;
      lists_shards = lists_shards || part->is_shard;
    }
  }
  std::vector<std::pair<std::filesystem::path, PartName>> of_optimizer;
  for (const std::filesystem::path& file : checkpoint::entries_of(folder)) {
    const std::string name = file.filename().string();
    if (name == "user_content.pt") user_content_ = read_user_content(file);
    const auto part = part_of(name);
    if (part && part->is_model) read_model(file, part->stage);
    if (part && !part->is_model) of_optimizer.emplace_back(file, *part);
  }
  for (const auto& [file, part] : of_optimizer) {
    read_optimizer(file, stages_[part.stage], part.is_shard);
  }
  if (stages_.empty()) {
    throw ConfigError("{} holds no checkpoint in parts: there is no model_0_0.pt in it",
                      state_.where());
  }
  const auto has_shards = [](const auto& stage) { return stage.second.shards > 0; };
  if (lists_shards || std::ranges::any_of(stages_, has_shards)) check_shards();
}

void SavedFolder::check_kind(const std::string& kind) const {
  const std::string& saved = state_.kind();
  if (saved == kind || (saved.empty() && has_settings_of(kind))) return;
  if (saved.empty() && state_.groups().empty() && !optimizer_file_.empty()) {
    throw ConfigError(
        "{} has no optimizer state: {}, which its manifest.json lists, is missing; bring it back, "
        "or give no optimizer to load",
        state_.where(), optimizer_file_);
  }
  throw ConfigError(
      "{} has the state of {}, and this optimizer is {}; make the same, or give no optimizer to "
      "load",
      state_.where(), saved.empty() ? "no optimizer" : saved, kind);
}

/// The first versions saved no class: then a setting that others do not have tells it. Adam and
/// AdamW have the same ones.
bool SavedFolder::has_settings_of(const std::string& kind) const {
  static const std::map<std::string, std::string> settings{{"Adam", "betas"},
                                                           {"AdamW", "betas"},
                                                           {"SGD", "dampening"},
                                                           {"RMSprop", "alpha"},
                                                           {"Adagrad", "lr_decay"}};
  const auto setting = settings.find(kind);
  return !state_.groups().empty() && setting != settings.end() &&
         state_.groups().front().settings.contains(setting->second);
}

/// State is in the shards of all ranks or of none.
void SavedFolder::check_shards() const {
  for (const auto& [name, stage] : stages_) {
    if (stage.shards > 0 && stage.shards == stage.shard_group) continue;
    throw ConfigError(
        "{} holds {} of {} files optimizer{}_*.pt: those of some ranks are missing; bring back all "
        "files of the checkpoint",
        state_.where(), stage.shards, stage.shards > 0 ? std::to_string(stage.shard_group) : "the",
        name.empty() ? "" : "_" + name);
  }
}

void SavedFolder::read_model(const std::filesystem::path& file, const std::string& stage) {
  stages_.try_emplace(stage);
  state_.add_model(ObjectReader(checkpoint::read_object(file), file.string()));
  for (const auto& [name, value] : state_.entries()) {
    if (!value.isTensor() || !stage_of_.try_emplace(name, stage).second) continue;
    shapes_.emplace(name, value.toTensor().sizes().vec());
  }
}

void SavedFolder::read_optimizer(const std::filesystem::path& file, Stage& stage, bool is_shard) {
  const ObjectReader object(checkpoint::read_object(file), file.string());
  state_.add_optimizer(object, {}, shapes_);
  if (is_shard) {
    ++stage.shards;
    stage.shard_group = state_.sharers();
  } else {
    stage.has_state = true;
  }
}

void SavedFolder::check_shape(const std::string& name, at::IntArrayRef saved,
                              at::IntArrayRef own) const {
  if (saved == own) return;
  throw ConfigError("{}: \"{}\" has shape {}, and {} in this model", state_.where(), name,
                    text_of(saved), text_of(own));
}

void SavedFolder::check_value(const std::string& name, at::IntArrayRef shape) const {
  if (state_.has_master(name)) {
    check_shape(name, *state_.parameters().at(name).shape, shape);
    state_.check_run(name, checkpoint::kMaster, 0, c10::multiply_integers(shape));
    return;
  }
  const auto saved = shapes_.find(name);
  if (saved == shapes_.end()) {
    throw ConfigError(
        "{} has no \"{}\", which this model has: it is another model's, or files are missing",
        state_.where(), name);
  }
  check_shape(name, saved->second, shape);
}

at::Tensor SavedFolder::value_of(const std::string& name, at::IntArrayRef shape) const {
  check_value(name, shape);
  if (!state_.has_master(name)) return state_.entries().at(name).toTensor();
  return state_.master_of(name, 0, c10::multiply_integers(shape)).view(shape);
}

void SavedFolder::check_state(const std::string& name, std::int64_t start,
                              std::int64_t elements) const {
  if (const auto entry = stage_of_.find(name); entry != stage_of_.end()) {
    const Stage& stage = stages_.at(entry->second);
    if (!stage.has_state && stage.shards == 0) {
      throw ConfigError(
          "{} has no optimizer state of \"{}\": optimizer_{}.pt is missing; bring it back, or give "
          "no optimizer to load",
          state_.where(), name, entry->second);
    }
  }
  const auto parameter = state_.parameters().find(name);
  if (parameter == state_.parameters().end()) return;
  for (const auto& [field, runs] : parameter->second.runs) {
    state_.check_run(name, field, start, elements);
  }
}

GroupSettings settings_of(const checkpoint::SavedGroup& group) {
  GroupSettings settings;
  for (const auto& [key, object] : group.settings) {
    const ObjectReader value(object, key);
    if (key == "betas") {
      const auto betas = value.elements();
      if (betas.size() == 2) settings.betas = {betas[0].number(), betas[1].number()};
    } else if (object.isBool()) {
      settings.flags.emplace(key, object.toBool());
    } else if (value.is_number()) {
      settings.numbers.emplace(key, value.number());
    }
  }
  return settings;
}

ParameterState state_from(const std::map<std::string, c10::IValue>& saved) {
  ParameterState state;
  for (const auto& [key, value] : saved) {
    if (key == "step") {
      state.step = ObjectReader(value, key).number();
    } else if (value.isTensor()) {
      state.tensors.emplace(key, value.toTensor());
    }
  }
  return state;
}

}  // namespace smp::api
