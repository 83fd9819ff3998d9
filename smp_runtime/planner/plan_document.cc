// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/plan_document.h"

#include <cmath>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/planner/calibration.h"
#include "smp_runtime/planner/instance_table.h"
#include "smp_runtime/planner/search.h"

namespace smp::planner {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Device, name, is_gpu, memory_bytes, flops_32, flops_16,
                                   has_bfloat16, bytes_per_second, host_bytes_per_second,
                                   operation_seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Link, bytes_per_second, latency_seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Machines, hosts, ranks_a_host, processors, device, inside,
                                   between, source, is_measured)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepTimes, computing, recomputing, waiting, gathering, reducing,
                                   exchanging, updating)

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kFormat = 1;

std::vector<Work> work_of(const json& rows) {
  std::vector<Work> work;
  for (const json& row : rows) {
    work.push_back(
        {.flops = row.at(0), .bytes = row.at(1), .parameter_bytes = row.at(2), .count = row.at(3)});
  }
  return work;
}

ProfiledModule module_of(const json& from) {
  return {.module = {.name = from.at("name"),
                     .parameters = from.at("parameters"),
                     .input_bytes = from.at("input_bytes"),
                     .output_bytes = from.at("output_bytes"),
                     .calls = from.at("calls"),
                     .called = from.at("called"),
                     .pin = {},
                     .passes_on = from.at("passes_on")},
          .parent = from.at("parent"),
          .work = work_of(from.at("work")),
          .is_split = from.at("is_split"),
          .exchanged_bytes = from.at("exchanged_bytes")};
}

Recomputation recomputation_of(const json& from) {
  return {.name = from.at("name"),
          .change = from.at("change"),
          .kept_bytes = from.at("kept_bytes"),
          .recomputed = from.at("recomputed"),
          .once_bytes = from.at("once_bytes")};
}

ModelProfile profile_of(const json& from) {
  ModelProfile model{.modules = {},
                     .parameters = {},
                     .tensors = {},
                     .recomputations = {},
                     .batch = from.at("batch"),
                     .element_bytes = from.at("element_bytes"),
                     .optimizer = from.at("optimizer"),
                     .moments = from.at("moments"),
                     .tensor_degrees = from.at("tensor_degrees"),
                     .is_counted = from.at("is_counted")};
  for (const json& one : from.at("modules")) model.modules.push_back(module_of(one));
  for (const json& one : from.at("parameters")) {
    model.parameters.push_back({.name = one.at("name"),
                                .elements = one.at("elements"),
                                .bytes = one.at("bytes"),
                                .is_split = one.at("is_split"),
                                .trains = one.at("trains")});
  }
  for (const json& one : from.at("tensors")) {
    model.tensors.push_back({.bytes = one.at("bytes"),
                             .producer = one.at("producer"),
                             .consumers = one.at("consumers")});
  }
  for (const json& one : from.at("recomputations")) {
    model.recomputations.push_back(recomputation_of(one));
  }
  return model;
}

topology::Settings settings_of(const json& from, std::string where) {
  return topology::parse_settings(from.dump(), std::move(where));
}

ordered_json settings_json(const topology::Settings& settings) {
  ordered_json object = ordered_json::object();
  for (const topology::Setting& setting : settings.entries) {
    object[setting.name] = ordered_json::parse(topology::to_text(setting.value));
  }
  return object;
}

std::int64_t rounded(double bytes) { return std::llround(bytes); }

ordered_json ranked_json(const ModelProfile& model, const Ranked& ranked) {
  const auto& [candidate, prediction] = ranked;
  const Recomputation& how = recomputation_of(model, candidate);
  const StepTimes& times = prediction.times;
  const MemoryNeeds& memory = prediction.memory;
  return {{"mp_parameters", settings_json(candidate.settings)},
          {"checkpointing", how.name},
          {"change_of_script", how.change},
          {"step_seconds", times.step()},
          {"samples_a_step", prediction.samples},
          {"samples_per_second", prediction.samples_per_second()},
          {"memory_bytes", rounded(memory.total())},
          {"fits", prediction.fits},
          {"bound", prediction.bound},
          {"sent_bytes", rounded(prediction.sent_bytes)},
          {"busy_share", prediction.busy_share},
          {"times", json(times)},
          {"memory",
           {{"parameters", rounded(memory.parameters)},
            {"gathered", rounded(memory.gathered)},
            {"gradients", rounded(memory.gradients)},
            {"optimizer", rounded(memory.optimizer)},
            {"activations", rounded(memory.activations)},
            {"buffers", rounded(memory.buffers)}}}};
}

ordered_json all_ranked(const ModelProfile& model, const std::vector<Ranked>& ranked) {
  ordered_json list = ordered_json::array();
  for (const Ranked& one : ranked) list.push_back(ranked_json(model, one));
  return list;
}

ordered_json plan_json(const ModelProfile& model, const Plan& plan) {
  ordered_json changes = ordered_json::array();
  for (const Change& change : plan.changes) {
    changes.push_back({{"choice", change.choice},
                       {"speed", change.speed},
                       {"memory_bytes", rounded(change.memory_bytes)},
                       {"fits", change.fits}});
  }
  return {{"candidates", plan.candidates},
          {"best", all_ranked(model, plan.best)},
          {"changes", std::move(changes)},
          {"examined", all_ranked(model, plan.examined)},
          {"hosts_needed", plan.hosts_needed ? ordered_json(*plan.hosts_needed) : ordered_json()},
          {"least_bytes", rounded(plan.least_bytes)}};
}

int recomputation_named(const ModelProfile& model, const std::string& name) {
  for (std::size_t number = 0; number < model.recomputations.size(); ++number) {
    if (model.recomputations[number].name == name) return static_cast<int>(number);
  }
  throw ConfigError("checkpointing \"{}\" is none of this model's", name);
}

MeasuredRun run_of(const json& from) {
  return {.hosts = from.at("hosts"),
          .ranks_a_host = from.at("ranks_a_host"),
          .settings = settings_of(from.at("settings"), "the settings of the report"),
          .batch = from.at("batch"),
          .step_seconds = from.at("step_seconds"),
          .times = from.at("times"),
          .activation_bytes = from.at("activation_bytes")};
}

ordered_json calibration_json(const Calibration& done, const MeasuredRun& run) {
  const Prediction& predicted = done.predicted;
  return {{"predicted",
           {{"step_seconds", predicted.times.step()},
            {"times", json(predicted.times)},
            {"activation_bytes", rounded(predicted.memory.activations)}}},
          {"measured",
           {{"step_seconds", run.step_seconds},
            {"times", json(run.times)},
            {"activation_bytes", rounded(run.activation_bytes)}}},
          {"device_speed", done.device_speed},
          {"link_speed", done.link_speed},
          {"activations", done.activations}};
}

ordered_json explained(const ModelProfile& model, const Machines& machines, const json& question) {
  const Candidate candidate =
      make_candidate(model, machines, settings_of(question.at("explain"), "--explain"),
                     recomputation_named(model, question.at("checkpointing")));
  return ranked_json(model, {candidate, predict(model, machines, candidate)});
}

ordered_json answered(const json& question) {
  ModelProfile model = profile_of(question.at("profile"));
  Machines machines = question.at("machines");
  check_profile(model);
  check_machines(machines);
  ordered_json result{{"format", kFormat}};
  if (question.contains("run")) {
    const MeasuredRun run = run_of(question.at("run"));
    result["calibration"] = calibration_json(calibrate(model, machines, run), run);
  }
  result["machines"] = json(machines);
  if (question.contains("explain")) {
    result["explained"] = explained(model, machines, question);
    return result;
  }
  SearchSpace space{.fixed = settings_of(question.at("fixed"), "mp_parameters"),
                    .formats = question.at("formats")};
  std::erase_if(space.fixed.entries,
                [](const topology::Setting& setting) { return is_chosen(setting.name); });
  result.update(plan_json(model, plan(model, machines, space, question.at("count"))));
  return result;
}

}  // namespace

std::string answer(std::string_view question) {
  try {
    return answered(json::parse(question)).dump();
  } catch (const json::exception& error) {
    throw ConfigError("a question to the planner: {}", error.what());
  }
}

std::string machines_document(std::string_view type, int hosts) {
  const Machines machines = machines_of(type, hosts);
  check_machines(machines);
  return json(machines).dump();
}

}  // namespace smp::planner
