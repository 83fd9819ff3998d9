// SPDX-License-Identifier: Apache-2.0
#include "smp/job.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "opt_ml_layout/data_channels.h"
#include "opt_ml_layout/hyperparameters.h"
#include "opt_ml_layout/outputs.h"
#include "opt_ml_layout/paths.h"
#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/core/variables.h"

namespace smp {
namespace {

namespace fs = std::filesystem;
using opt_ml::Value;

/// "did you mean …", or all that there is.
std::string advice(std::string_view name, const std::vector<std::string>& known,
                   std::string_view what) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::vector<std::string_view> near = near_names(name, views);
  if (!near.empty()) return fmt::format("did you mean {}?", fmt::join(near, ", "));
  if (known.empty()) return fmt::format("the job has no {}", what);
  return fmt::format("the job's {} are {}", what, fmt::join(known, ", "));
}

fs::path base_of(const Variables& environment) {
  const std::string base = value_or(environment, "SAGEMAKER_BASE_DIR");
  if (!base.empty()) return fs::absolute(base);
  // Ranks that an engine's sshd starts have the job's variables and not their host's.
  const fs::path input = value_or(environment, "SM_INPUT_DIR");
  return input.empty() ? opt_ml::Layout::kDefaultBase : input.parent_path();
}

}  // namespace

struct Job::Content {
  explicit Content(opt_ml::Layout tree)
      : layout(std::move(tree)),
        checkpoints(opt_ml::read_checkpoint_place(layout).folder),
        channels(opt_ml::read_data_channels(layout)),
        hyperparameters(opt_ml::read_hyperparameters(layout, channels).user) {}

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const Value::Member& member : *hyperparameters.object()) result.push_back(member.key);
    std::ranges::sort(result);
    return result;
  }

  /// Value of the hyperparameter by `read`, which returns nothing for a value of another kind.
  template <typename T, typename Read>
  [[nodiscard]] T get(std::string_view name, const std::optional<T>& otherwise,
                      std::string_view expected, const Read& read) const {
    const Value* const value = hyperparameters.find(name);
    if (value == nullptr || value->is_null()) {
      if (otherwise) return *otherwise;
      throw ConfigError("hyperparameter \"{}\" is not set in {}; {}", name,
                        layout.hyperparameters().string(),
                        advice(name, names(), "hyperparameters"));
    }
    if (std::optional<T> result = read(*value)) return *std::move(result);
    throw ConfigError("hyperparameter \"{}\" is {}, expected {}; correct it", name,
                      opt_ml::to_json(*value), expected);
  }

  const opt_ml::Layout layout;
  const fs::path checkpoints;
  const opt_ml::DataChannels channels;
  const Value hyperparameters;
};

Job::Job(std::shared_ptr<const Content> content) : content_(std::move(content)) {}

Job Job::from_environment() { return from_folder(base_of(read_variables())); }

Job Job::from_folder(const fs::path& base) {
  return Job(std::make_shared<const Content>(opt_ml::Layout(base)));
}

std::vector<std::string> Job::hyperparameters() const { return content_->names(); }

bool Job::has(std::string_view hyperparameter) const {
  const Value* const value = content_->hyperparameters.find(hyperparameter);
  return value != nullptr && !value->is_null();
}

std::int64_t Job::integer(std::string_view name, std::optional<std::int64_t> otherwise) const {
  return content_->get(name, otherwise, "a whole number of 64 bits",
                       [](const Value& value) { return value.integer(); });
}

double Job::number(std::string_view name, std::optional<double> otherwise) const {
  return content_->get(name, otherwise, "a number",
                       [](const Value& value) -> std::optional<double> {
                         if (const double* real = value.real()) return *real;
                         if (const auto integer = value.integer())
                           return static_cast<double>(*integer);
                         if (const auto* digits = value.big_integer())
                           return std::stod(digits->digits);
                         return std::nullopt;
                       });
}

bool Job::flag(std::string_view name, std::optional<bool> otherwise) const {
  return content_->get(name, otherwise, "true or false",
                       [](const Value& value) { return opt_ml::parse_switch(value); });
}

std::string Job::text(std::string_view name, const std::optional<std::string>& otherwise) const {
  return content_->get(name, otherwise, "text", [](const Value& value) {
    return std::optional(opt_ml::environment_text(value));
  });
}

std::vector<std::string> Job::channels() const { return content_->channels.sorted_names(); }

fs::path Job::channel(std::string_view name) const {
  const auto& all = content_->channels.channels;
  const auto found = std::ranges::find(all, name, &opt_ml::Channel::name);
  if (found != all.end()) return found->folder;
  throw ConfigError("channel \"{}\" is not in {}; {}", name,
                    content_->layout.input_data_config().string(),
                    advice(name, channels(), "channels"));
}

fs::path Job::model_folder() const { return content_->layout.model(); }
fs::path Job::checkpoint_folder() const { return content_->checkpoints; }
fs::path Job::output_folder() const { return content_->layout.output_data(); }

}  // namespace smp
