// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/hyperparameters.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string>
#include <utility>

#include "opt_ml_layout/file_reference.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/variables.h"

namespace opt_ml {
namespace {

constexpr std::array kReserved = {
    std::string_view("sagemaker_program"),
    std::string_view("sagemaker_submit_directory"),
    std::string_view("sagemaker_enable_cloudwatch_metrics"),
    std::string_view("sagemaker_region"),
    std::string_view("sagemaker_container_log_level"),
    std::string_view("sagemaker_job_name"),
    std::string_view("default_user_module_name"),
    std::string_view("_tuning_objective_metric"),
    std::string_view("sagemaker_s3_output"),
};

}  // namespace

Value decode_hyperparameter(const Value& raw) {
  if (raw.text() == nullptr) return raw;
  return try_parse_json(*raw.text()).value_or(raw);
}

bool is_reserved_hyperparameter(std::string_view name) {
  return std::ranges::find(kReserved, name) != kReserved.end();
}

Hyperparameters split_hyperparameters(const Value& document) {
  SMP_CHECK(document.object() != nullptr, "hyperparameters are {}", document.kind_name());
  Hyperparameters result;
  for (const Value::Member& member : *document.object()) {
    Value& part = is_reserved_hyperparameter(member.key) ? result.reserved
                  : member.key.starts_with("sagemaker_") ? result.framework
                                                         : result.user;
    Value decoded = decode_hyperparameter(member.value);
    // JSON text decodes to what it says, with other text in the outcome: equal means it is none.
    if (decoded.text() != nullptr && decoded == member.value) result.not_json.push_back(member.key);
    part.set(member.key, std::move(decoded));
  }
  return result;
}

Hyperparameters read_hyperparameters(const Layout& layout, const DataChannels& channels) {
  const std::filesystem::path file = layout.hyperparameters();
  const Value document = read_json_file(file).value_or(Value::Object{});
  if (document.object() == nullptr) {
    throw smp::ConfigError("{}: is {}, expected an object of names and values; correct the file",
                           file.string(), document.kind_name());
  }
  return split_hyperparameters(resolve_file_references(document, channels));
}

std::optional<bool> parse_switch(const Value& value) {
  if (value.is_null()) return false;
  if (const auto boolean = value.boolean()) return boolean;
  const std::string word = environment_text(value);
  return word.empty() ? false : smp::parse_switch(word);
}

}  // namespace opt_ml
