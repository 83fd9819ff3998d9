// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/saved_state.h"

#include <algorithm>
#include <regex>
#include <sstream>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include "smp_runtime/api/state_files.h"
#include "smp_runtime/checkpoint/manifest.h"
#include "smp_runtime/checkpoint/staging.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace smp::api {
namespace {

constexpr std::int64_t kNewestFormat = 2;  // of flat parts

std::string text_of(at::IntArrayRef shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

/// All settings of a group but what names its parameters.
GroupSettings settings_of(const ObjectReader& group) {
  GroupSettings settings;
  for (const auto& [key, value] : group.items()) {
    if (key == "params" || key == "names") continue;
    if (key == "betas") {
      const auto betas = value.elements();
      if (betas.size() == 2) settings.betas = {betas[0].number(), betas[1].number()};
    } else if (value.object().isBool()) {
      settings.flags.emplace(key, value.object().toBool());
    } else if (value.is_number()) {
      settings.numbers.emplace(key, value.number());
    }
  }
  return settings;
}

std::vector<std::string> texts_of(const ObjectReader& list) {
  std::vector<std::string> all;
  for (const ObjectReader& element : list.elements()) all.push_back(element.text());
  return all;
}

/// A script may have put anything into it, which need not hinder the rest.
c10::IValue read_user_content(const std::filesystem::path& file) {
  if (std::filesystem::file_size(file) == 0) return {};  // a marker of another tool
  try {
    return read_object(file);
  } catch (const ConfigError& error) {
    SMP_LOG(warning, "the user content is left out: {}", error.what());
    return {};
  }
}

/// What the name of a file of a model or of an optimizer says.
struct PartName {
  bool is_model = false;
  bool is_shard = false;  ///< of the optimizer: flat state of one rank
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

SavedState::SavedState(const std::filesystem::path& folder) : where_(folder.string()) {
  bool lists_shards = false;
  const std::filesystem::path listed = folder / "manifest.json";
  if (std::filesystem::is_regular_file(listed)) {
    const auto manifest =
        checkpoint::Manifest::from_json(checkpoint::read_file(listed), listed.string());
    if (manifest.degrees.tensor > 1) {
      throw ConfigError(
          "{} was saved with tensor_parallel_degree {}, whose parts C++ programs do not put "
          "together; save it as a whole (partial=False) in Python",
          where_, manifest.degrees.tensor);
    }
    for (const checkpoint::FileDigest& file : manifest.files) {
      // Where each host has a folder of its own, others have files, too.
      const std::filesystem::path path = folder / file.name;
      if (std::filesystem::exists(path)) checkpoint::verify_file(path, file);
      const auto part = part_of(file.name);
      if (!part || part->is_model) continue;
      if (optimizer_file_.empty()) optimizer_file_ = file.name;
      lists_shards = lists_shards || part->is_shard;
    }
  }
  for (const std::filesystem::path& file : checkpoint::entries_of(folder)) {
    const std::string name = file.filename().string();
    if (name == "user_content.pt") user_content_ = read_user_content(file);
    const auto part = part_of(name);
    if (!part) continue;
    if (part->is_model) {
      read_model(file, part->stage);
    } else if (part->is_shard) {
      read_flat(file, stages_[part->stage]);
    } else {
      stages_[part->stage].has_state = true;
      read_plain(file);
    }
  }
  if (stages_.empty()) {
    throw ConfigError("{} holds no checkpoint in parts: there is no model_0_0.pt in it", where_);
  }
  const auto has_shards = [](const auto& stage) { return stage.second.shards > 0; };
  if (lists_shards || std::ranges::any_of(stages_, has_shards)) check_shards();
}

void SavedState::check_kind(const std::string& kind) const {
  if (kind_ == kind || (kind_.empty() && has_settings_of(kind))) return;
  if (kind_.empty() && groups_.empty() && !optimizer_file_.empty()) {
    throw ConfigError(
        "{} has no optimizer state: {}, which its manifest.json lists, is missing; bring it back, "
        "or give no optimizer to load",
        where_, optimizer_file_);
  }
  throw ConfigError(
      "{} has the state of {}, and this optimizer is {}; make the same, or give no optimizer to "
      "load",
      where_, kind_.empty() ? "no optimizer" : kind_, kind);
}

/// The first versions saved no class: then a setting that others do not have tells it. Adam and
/// AdamW have the same ones.
bool SavedState::has_settings_of(const std::string& kind) const {
  static const std::map<std::string, std::string> settings{
      {"SGD", "dampening"}, {"RMSprop", "alpha"}, {"Adagrad", "lr_decay"}};
  if (groups_.empty()) return false;
  const GroupSettings& saved = groups_.front().settings;
  if (kind == "Adam" || kind == "AdamW") return saved.betas.has_value();
  const auto setting = settings.find(kind);
  return setting != settings.end() && saved.numbers.contains(setting->second);
}

/// What is in shards is in all of them.
void SavedState::check_shards() const {
  for (const auto& [name, stage] : stages_) {
    if (stage.shards > 0 && stage.shards == stage.shard_group) continue;
    throw ConfigError(
        "{} holds {} of {} files optimizer{}_*.pt: those of some ranks are missing; bring back all "
        "files of the checkpoint",
        where_, stage.shards, stage.shards > 0 ? std::to_string(stage.shard_group) : "the",
        name.empty() ? "" : "_" + name);
  }
}

void SavedState::read_model(const std::filesystem::path& file, const std::string& stage) {
  const ObjectReader object(read_object(file), file.string());
  const ObjectReader entries = object.has("module") ? object.at("module") : object;
  stages_.try_emplace(stage);
  for (const auto& [name, value] : entries.items()) {
    if (!value.is_tensor()) continue;
    entries_.try_emplace(name, SavedEntry{.values = value.tensor(), .stage = stage});
  }
}

void SavedState::read_plain(const std::filesystem::path& file) {
  const ObjectReader object(read_object(file), file.string());
  const std::vector<std::string> names = texts_of(object.at(kNamesKey));
  const auto name_of = [&](std::size_t number) -> const std::string& {
    if (number < names.size()) return names[number];
    throw ConfigError("{}: parameter {} of {} has no name", file.string(), number, names.size());
  };
  if (object.has(kKindKey)) kind_ = object.at(kKindKey).text();
  for (const auto& [number, state] : object.at("state").items()) {
    SavedParameter& parameter = parameters_[name_of(std::stoul(number))];
    for (const auto& [key, value] : state.items()) {
      if (key == "step") {
        parameter.step = value.number();
      } else if (value.is_tensor()) {
        parameter.runs[key] = {{.start = 0, .values = value.tensor().reshape({-1})}};
      }
    }
  }
  if (!groups_.empty()) return;  // each file has all of them
  for (const ObjectReader& group : object.at("param_groups").elements()) {
    SavedGroup saved{.settings = settings_of(group), .names = {}};
    for (const std::int64_t number : group.at("params").integers()) {
      saved.names.push_back(name_of(static_cast<std::size_t>(number)));
    }
    groups_.push_back(std::move(saved));
  }
}

void SavedState::read_flat(const std::filesystem::path& file, SavedStage& stage) {
  const ObjectReader object(read_object(file), file.string());
  if (object.has("format") && object.at("format").integer() > kNewestFormat) {
    throw ConfigError("{} has shards of format {}; this version reads formats 1 to {}",
                      file.string(), object.at("format").integer(), kNewestFormat);
  }
  ++stage.shards;
  stage.shard_group = object.at("partition_count").integer();
  if (object.has("optimizer")) kind_ = object.at("optimizer").text();
  if (object.has("loss_scaler")) {
    const auto scale = object.at("loss_scaler").elements();
    if (scale.size() == 3) {
      loss_scale_ = {.scale = scale[0].number(),
                     .good_steps = scale[1].integer(),
                     .patience = scale[2].integer()};
    }
  }
  for (const auto& [name, entry] : object.at("parameters").items()) {
    SavedParameter& parameter = parameters_[name];
    parameter.shape = entry.at("shape").integers();
    const std::int64_t start = entry.at("start").integer();
    for (const auto& [key, value] : entry.at("state").items()) {
      parameter.runs[key].push_back({.start = start, .values = value.tensor().reshape({-1})});
    }
    if (entry.has(kMaster)) {
      const std::int64_t from =
          entry.has("master_start") ? entry.at("master_start").integer() : start;
      parameter.runs[kMaster].push_back(
          {.start = from, .values = entry.at(kMaster).tensor().reshape({-1})});
    }
    const ObjectReader scalars = entry.at("scalars");
    if (scalars.has("step")) parameter.step = scalars.at("step").number();
  }
  // Each pipeline stage has its own parameters, by group.
  std::size_t number = 0;
  for (const ObjectReader& group : object.at("param_groups").elements()) {
    if (groups_.size() <= number) groups_.push_back({.settings = settings_of(group), .names = {}});
    for (const std::string& name : texts_of(group.at("names"))) {
      auto& names = groups_[number].names;
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    ++number;
  }
}

void SavedState::check_shape(const std::string& name, at::IntArrayRef saved,
                             at::IntArrayRef own) const {
  if (saved == own) return;
  throw ConfigError("{}: \"{}\" has shape {}, and {} in this model", where_, name, text_of(saved),
                    text_of(own));
}

const SavedParameter* SavedState::with_master(const std::string& name) const {
  const auto held = parameters_.find(name);
  const bool is_there = held != parameters_.end() && held->second.runs.contains(kMaster);
  return is_there ? &held->second : nullptr;
}

void SavedState::check_value(const std::string& name, at::IntArrayRef shape) const {
  if (const SavedParameter* held = with_master(name)) {
    check_shape(name, held->shape, shape);
    check_run(name, kMaster, 0, c10::multiply_integers(shape));
    return;
  }
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) {
    throw ConfigError(
        "{} has no \"{}\", which this model has: it is another model's, or files are missing",
        where_, name);
  }
  check_shape(name, entry->second.values.sizes(), shape);
}

at::Tensor SavedState::value_of(const std::string& name, at::IntArrayRef shape) const {
  check_value(name, shape);
  if (with_master(name) == nullptr) return entries_.at(name).values;
  return run_of(name, kMaster, 0, c10::multiply_integers(shape)).view(shape);
}

std::vector<std::string> SavedState::state_names(const std::string& name) const {
  std::vector<std::string> names;
  const auto held = parameters_.find(name);
  if (held == parameters_.end()) return names;
  for (const auto& [key, runs] : held->second.runs) {
    if (key != kMaster) names.push_back(key);
  }
  return names;
}

std::optional<double> SavedState::step_of(const std::string& name) const {
  const auto held = parameters_.find(name);
  return held == parameters_.end() ? std::nullopt : held->second.step;
}

void SavedState::check_state(const std::string& name, std::int64_t start,
                             std::int64_t elements) const {
  const auto entry = entries_.find(name);
  if (entry != entries_.end()) {
    const SavedStage& stage = stages_.at(entry->second.stage);
    if (!stage.has_state && stage.shards == 0) {
      throw ConfigError(
          "{} has no optimizer state of \"{}\": optimizer_{}.pt is missing; bring it back, or give "
          "no optimizer to load",
          where_, name, entry->second.stage);
    }
  }
  for (const std::string& key : state_names(name)) check_run(name, key, start, elements);
}

void SavedState::check_run(const std::string& name, const std::string& key, std::int64_t start,
                           std::int64_t elements) const {
  std::int64_t found = 0;
  for (const SavedRun& run : parameters_.at(name).runs.at(key)) {
    const auto [first, last] = run.within(start, elements);
    found += std::max<std::int64_t>(last - first, 0);
  }
  if (found == elements) return;
  throw ConfigError(
      "{} holds {} of {} elements of {} of \"{}\": files of some ranks are missing, or it is "
      "another model's",
      where_, found, elements, key, name);
}

at::Tensor SavedState::run_of(const std::string& name, const std::string& key, std::int64_t start,
                              std::int64_t elements) const {
  check_run(name, key, start, elements);
  const at::NoGradGuard no_grad;
  const std::vector<SavedRun>& runs = parameters_.at(name).runs.at(key);
  at::Tensor values = at::empty({elements}, runs.front().values.options());
  for (const SavedRun& run : runs) {
    const auto [first, last] = run.within(start, elements);
    if (first >= last) continue;
    values.narrow(0, first - start, last - first)
        .copy_(run.values.narrow(0, first - run.start, last - first));
  }
  return values;
}

}  // namespace smp::api
