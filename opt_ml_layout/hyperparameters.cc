// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/hyperparameters.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "opt_ml_layout/data_channels.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/value.h"
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

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "@file:";
constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 20;

bool is_inside(const fs::path& folder, const fs::path& file) {
  std::error_code failed;
  const fs::path relative =
      fs::weakly_canonical(file, failed).lexically_relative(fs::weakly_canonical(folder, failed));
  return !failed && !relative.empty() && *relative.begin() != "..";
}

std::string read_referenced(const std::string& name, const fs::path& folder, const fs::path& file) {
  const auto fail = [&](std::string_view why) {
    throw smp::ConfigError(
        "hyperparameter \"{}\" names file {}, which {}; expected {}CHANNEL/PATH of a file of at "
        "most {} bytes in the channel",
        name, file.string(), why, kPrefix, kMostBytes);
  };
  std::error_code failed;
  if (!is_inside(folder, file)) fail("lies outside the channel");
  if (!fs::is_regular_file(file, failed)) fail("does not exist");
  if (fs::file_size(file, failed) > kMostBytes) fail("is larger");
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail("cannot be read");
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

/// The file's text; nothing for a value that is no reference.
std::optional<std::string> resolved(const Value::Member& member, const DataChannels& channels) {
  const Value value = decode_hyperparameter(member.value);
  if (value.text() == nullptr || !value.text()->starts_with(kPrefix)) return std::nullopt;
  const std::string path = value.text()->substr(kPrefix.size());
  const std::size_t slash = path.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto channel = std::ranges::find(channels.channels, path.substr(0, slash), &Channel::name);
  if (channel == channels.channels.end()) return std::nullopt;
  return read_referenced(member.key, channel->folder, channel->folder / path.substr(slash + 1));
}

/// Reads hyperparameters whose value lies in a file, for the service takes at most 2500 characters
/// for each: the document of hyperparameters.json with each value `@file:CHANNEL/PATH`, JSON quotes
/// around it or not, replaced by the text of that file of that channel, without its last line
/// break; what the text means is decided as for a value that came directly. Text whose CHANNEL is
/// none of the job's stays as it is: it is somebody's own. Throws ConfigError for a file that does
/// not exist, lies outside the channel, or has more than 1 MiB.
Value resolve_file_references(const Value& document, const DataChannels& channels) {
  Value result = document;
  for (const Value::Member& member : *document.object()) {
    if (auto text = resolved(member, channels)) result.set(member.key, std::move(*text));
  }
  return result;
}

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
