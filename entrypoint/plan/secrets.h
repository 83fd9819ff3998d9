// SPDX-License-Identifier: Apache-2.0
// Keeps passwords and keys out of all that the launcher writes: plans, logs, failure texts,
// reports, and the output that it passes on.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "entrypoint/plan/environment.h"
#include "entrypoint/plan/secret_names.h"
#include "entrypoint/plan/secret_values.h"
#include "opt_ml_layout/hyperparameters.h"
#include "opt_ml_layout/value.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint {

/// Masks by name what stands behind a name, short values too, then by value what SecretValues
/// finds. Names stand as in `--api-key X`, `--api-key=X`, `-x API_KEY=X`, `lr=1,api_key=X` (up to
/// the next `,NAME=`), in JSON, and in all of these within JSON, within a command that is one text,
/// and within the value of an override.
class Secrets {
 public:
  /// Knows no value yet: masks by name, and passwords in URLs.
  Secrets() = default;
  /// What is masked by name in variables and hyperparameters is found by value in all that follows.
  Secrets(const smp::Variables& environment, const opt_ml::Hyperparameters& parameters);

  /// By value alone: a text of no known form.
  [[nodiscard]] std::string mask(std::string text) const { return values_.mask(std::move(text)); }
  /// The same; nothing for a text that is fine as it is.
  [[nodiscard]] std::optional<std::string> masked(std::string_view text) const {
    return values_.masked(text);
  }

  /// The words of a command, also inside the text that follows `/bin/sh -c`.
  [[nodiscard]] std::vector<std::string> mask(std::span<const std::string> argv) const;

  [[nodiscard]] std::vector<Variable> mask(std::span<const Variable> environment) const;

  /// A JSON value at every level; lists of arguments such as SM_USER_ARGS are commands.
  [[nodiscard]] opt_ml::Value mask(const opt_ml::Value& value) const;

 private:
  SecretNames names_;
  SecretValues values_;
};

}  // namespace entrypoint
