// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/saved_state.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::checkpoint {
namespace {

std::vector<std::string> texts_of(const ObjectReader& list) {
  std::vector<std::string> all;
  for (const ObjectReader& element : list.elements()) all.push_back(element.text());
  return all;
}

std::map<std::string, std::string> tied_of(const ObjectReader& object) {
  std::map<std::string, std::string> tied;
  for (const auto& [name, first] : object.items()) tied.emplace(name, first.text());
  return tied;
}

/// The elements of `run` among the `elements` from `from` on, as begin and end; none if the end is
/// not above the begin.
std::pair<std::int64_t, std::int64_t> within(const SavedRun& run, std::int64_t from,
                                             std::int64_t elements) {
  return {std::max(run.start, from), std::min(run.start + run.values.numel(), from + elements)};
}

/// How many of the `elements` from `from` on are in some run.
std::int64_t held(const std::vector<SavedRun>& runs, std::int64_t from, std::int64_t elements) {
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (const SavedRun& run : runs) parts.push_back(within(run, from, elements));
  std::ranges::sort(parts);
  std::int64_t found = 0;
  std::int64_t end = from;
  for (const auto& [first, last] : parts) {
    found += std::max<std::int64_t>(last - std::max(first, end), 0);
    end = std::max(end, last);
  }
  return found;
}

/// Number of elements of a shape that a file says.
std::int64_t elements_of(const std::vector<std::int64_t>& shape, const std::string& where) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) {
      throw ConfigError("{} is [{}], which is no shape of a tensor", where, fmt::join(shape, ", "));
    }
  }
  return elements;
}

void check_format(const ObjectReader& part, const std::string& where) {
  if (!part.has("format")) return;  // the first did not say its number
  const ObjectReader format = part.at("format");
  if (format.object().isInt() && format.integer() >= 1 && format.integer() <= kNewestPartFormat) {
    return;
  }
  throw ConfigError(
      "{} has shards of format {}; this version reads formats 1 to {}: go on with the version of "
      "the library that saved it, or a later one",
      where, format.is_number() ? std::to_string(format.integer()) : format.object().tagKind(),
      kNewestPartFormat);
}

}  // namespace

c10::IValue alone(const c10::IValue& value) {
  return value.isTensor() ? c10::IValue(value.toTensor().clone()) : value;
}

void SavedState::add_model(const ObjectReader& object,
                           const std::map<std::string, std::string>& tied) {
  values_in_shards_ = object.has("param_shapes");
  const ObjectReader entries = values_in_shards_ ? object.at("module") : object;
  for (const auto& [name, value] : entries.items()) {
    if (name == kPartialKey) continue;
    if (!entries_.contains(name)) entry_names_.push_back(name);
    entries_.insert_or_assign(name, value.object());
  }
  if (values_in_shards_) tied_ = object.has("tied") ? tied_of(object.at("tied")) : tied;
}

void SavedState::add_optimizer(const ObjectReader& object, const std::vector<std::string>& names,
                               const Shapes& shapes) {
  if (object.has("parameters")) {
    add_part(object);
  } else if (object.at("state").is_list()) {
    for (const ObjectReader& part : object.at("state").elements()) add_part(part);
  } else {
    add_whole(object, names, shapes);
  }
}

void SavedState::add_whole(const ObjectReader& object, const std::vector<std::string>& names,
                           const Shapes& shapes) {
  const std::vector<std::string> saved_names =
      object.has(kNamesKey) ? texts_of(object.at(kNamesKey)) : names;
  const auto name_of = [&](std::size_t number) {
    const bool has_name = number < saved_names.size() && !saved_names[number].empty();
    return has_name ? saved_names[number] : fmt::format("#{}", number);
  };
  if (object.has(kKindKey)) kind_ = object.at(kKindKey).text();
  add_loss_scale(object);
  for (const std::string& name : saved_names) {
    if (const auto known = shapes.find(name); known != shapes.end()) {
      named(name).shape = known->second;
    }
  }
  for (const auto& [number, values] : object.at("state").items()) {
    const auto parameter_number = parse_number<std::size_t>(number);
    if (!parameter_number) {
      common_.insert_or_assign(number, values.object());
      continue;
    }
    SavedParameter& parameter = named(name_of(*parameter_number));
    for (const auto& [field, value] : values.items()) {
      // A count of steps has the shape of a parameter without a dimension.
      const bool each = field != "step" && value.is_tensor() && parameter.shape &&
                        value.tensor().sizes() == *parameter.shape;
      if (each) {
        parameter.runs[field] = {{.start = 0, .values = value.tensor().reshape({-1})}};
      } else {
        parameter.others[field] = value.object();
      }
    }
  }
  if (object.has(kMastersKey)) {
    for (const auto& [number, value] : object.at(kMastersKey).items()) {
      const auto parameter_number = parse_number<std::size_t>(number);
      if (!parameter_number) {
        throw ConfigError("{} has a master of parameter \"{}\", which is no number", where_,
                          number);
      }
      SavedParameter& parameter = named(name_of(*parameter_number));
      parameter.shape = value.tensor().sizes().vec();
      parameter.master = {{.start = 0, .values = value.tensor().reshape({-1})}};
    }
  }
  std::size_t number = 0;
  for (const ObjectReader& group : object.at("param_groups").elements()) {
    std::vector<std::string> members;
    for (const std::int64_t member : group.at("params").integers()) {
      members.push_back(name_of(static_cast<std::size_t>(member)));
    }
    add_group(number++, group, std::move(members));
  }
}

void SavedState::add_part(const ObjectReader& part) {
  check_format(part, where_);
  ++parts_;
  sharers_ = part.at("partition_count").integer();
  shared_ = part.has("shared") ? part.at("shared").flag() : sharers_ > 1;
  of_optimizer_ = of_optimizer_ && part.has("of_optimizer") && part.at("of_optimizer").flag();
  if (part.has("optimizer")) kind_ = part.at("optimizer").text();
  add_loss_scale(part);
  for (const auto& [name, entry] : part.at("parameters").items()) {
    SavedParameter& parameter = named(name);
    parameter.shape = entry.at("shape").integers();
    const std::int64_t elements =
        elements_of(*parameter.shape, fmt::format("{}: the shape of \"{}\"", where_, name));
    const auto run_at = [&](const ObjectReader& value, std::int64_t start) -> SavedRun {
      const at::Tensor values = value.tensor().reshape({-1});
      if (start < 0 || values.numel() > elements - start) {
        throw ConfigError("{} has {} elements of \"{}\" from {} on; expected a run of its {}",
                          where_, values.numel(), name, start, elements);
      }
      return {.start = start, .values = values};
    };
    const std::int64_t start = entry.at("start").integer();
    for (const auto& [field, value] : entry.at("state").items()) {
      parameter.runs[field].push_back(run_at(value, start));
    }
    if (entry.has(kMaster)) {
      const std::int64_t from =
          entry.has("master_start") ? entry.at("master_start").integer() : start;
      parameter.master.push_back(run_at(entry.at(kMaster), from));
    }
    if (!parameter.others.empty()) continue;  // alike on all ranks that hold some of it
    for (const auto& [key, value] : entry.at("scalars").items()) {
      parameter.others[key] = value.object();
    }
  }
  std::size_t number = 0;
  for (const ObjectReader& group : part.at("param_groups").elements()) {
    add_group(number++, group, texts_of(group.at("names")));
  }
}

SavedParameter& SavedState::named(const std::string& name) {
  const auto [parameter, is_new] = parameters_.try_emplace(name);
  if (is_new) parameter_names_.push_back(name);
  return parameter->second;
}

void SavedState::add_loss_scale(const ObjectReader& object) {
  if (!object.has("loss_scaler")) return;
  const auto scale = object.at("loss_scaler").elements();
  if (scale.size() != 3) return;
  loss_scale_ = {
      .scale = scale[0].number(), .good_steps = scale[1].integer(), .patience = scale[2].integer()};
}

/// Each file has the settings of all groups, and names of parameters that others may lack.
void SavedState::add_group(std::size_t number, const ObjectReader& group,
                           std::vector<std::string> names) {
  if (groups_.size() > number) {
    auto& known = groups_[number].names;
    for (std::string& name : names) {
      if (std::ranges::find(known, name) == known.end()) known.push_back(std::move(name));
    }
    return;
  }
  SavedGroup added{.settings = {}, .names = std::move(names)};
  for (const auto& [key, value] : group.items()) {
    if (key != "params" && key != "names") added.settings.emplace(key, value.object());
  }
  groups_.push_back(std::move(added));
}

void SavedState::complete_with(const SavedState& other) {
  bool takes = false;
  const auto complete = [&](std::vector<SavedRun>& runs, const std::vector<SavedRun>& more,
                            std::int64_t elements) {
    if (more.empty() || held(runs, 0, elements) >= elements) return;
    runs.insert(runs.end(), more.begin(), more.end());
    takes = true;
  };
  for (const std::string& name : other.parameter_names_) {
    const SavedParameter& there = other.parameters_.at(name);
    SavedParameter& parameter = named(name);
    if (!parameter.shape) parameter.shape = there.shape;
    const std::int64_t elements = c10::multiply_integers(*parameter.shape);
    complete(parameter.master, there.master, elements);
    for (const auto& [field, runs] : there.runs) complete(parameter.runs[field], runs, elements);
    if (parameter.others.empty()) parameter.others = there.others;
  }
  if (takes) parts_ += other.parts_;
}

void SavedState::check_complete(const std::vector<SavedRun>& runs, const std::string& name,
                                const std::string& field, std::int64_t start,
                                std::int64_t elements) const {
  const std::int64_t found = held(runs, start, elements);
  if (found == elements) return;
  throw ConfigError(
      "{} holds {} of {} elements of {} of \"{}\": files of some ranks are missing, or it is "
      "another model's",
      where_, found, elements, field, name);
}

at::Tensor SavedState::joined(const std::vector<SavedRun>& runs, const std::string& name,
                              const std::string& field, std::int64_t start,
                              std::int64_t elements) const {
  check_complete(runs, name, field, start, elements);
  // Values of a whole parameter need no copy; parts may lie in mapped files.
  if (parts_ == 0 && runs.size() == 1) {
    return runs.front().values.narrow(0, start - runs.front().start, elements);
  }
  const at::NoGradGuard no_grad;
  at::Tensor values = at::empty({elements}, at::dtype(runs.front().values.scalar_type()));
  for (const SavedRun& run : runs) {
    const auto [first, last] = within(run, start, elements);
    if (first >= last) continue;
    values.narrow(0, first - start, last - first)
        .copy_(run.values.narrow(0, first - run.start, last - first));
  }
  return values;
}

bool SavedState::has_master(const std::string& name) const {
  const auto parameter = parameters_.find(name);
  return parameter != parameters_.end() && !parameter->second.master.empty();
}

at::Tensor SavedState::master_of(const std::string& name, std::int64_t start,
                                 std::int64_t elements) const {
  return joined(parameters_.at(name).master, name, kMaster, start, elements);
}

at::Tensor SavedState::run_of(const std::string& name, const std::string& field, std::int64_t start,
                              std::int64_t elements) const {
  return joined(parameters_.at(name).runs.at(field), name, field, start, elements);
}

void SavedState::check_run(const std::string& name, const std::string& field, std::int64_t start,
                           std::int64_t elements) const {
  const SavedParameter& parameter = parameters_.at(name);
  check_complete(field == kMaster ? parameter.master : parameter.runs.at(field), name, field, start,
                 elements);
}

std::vector<std::pair<std::string, at::Tensor>> SavedState::whole_masters() const {
  std::vector<std::pair<std::string, at::Tensor>> masters;
  for (const std::string& name : parameter_names_) {
    if (!has_master(name)) continue;
    const std::vector<std::int64_t>& shape = *parameters_.at(name).shape;
    masters.emplace_back(name, master_of(name, 0, c10::multiply_integers(shape)).view(shape));
  }
  return masters;
}

std::map<std::string, c10::IValue> SavedState::whole_state(const std::string& name) const {
  std::map<std::string, c10::IValue> state;
  const auto found = parameters_.find(name);
  if (found == parameters_.end()) return state;
  const SavedParameter& parameter = found->second;
  for (const auto& [field, runs] : parameter.runs) {
    const std::int64_t elements = c10::multiply_integers(*parameter.shape);
    state.emplace(field, run_of(name, field, 0, elements).view(*parameter.shape));
  }
  for (const auto& [key, value] : parameter.others) {
    state.emplace(key, alone(value));
  }
  return state;
}

}  // namespace smp::checkpoint
