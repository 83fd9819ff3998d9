// SPDX-License-Identifier: Apache-2.0
// Keeps passwords and keys out of logs, plans and failure texts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/plan/environment.h"
#include "opt_ml_layout/value.h"

namespace entrypoint {

inline constexpr std::string_view kMask = "******";

/// True if a name (variable, hyperparameter, option) says that its value is secret: it holds
/// SECRET, PASSWORD, TOKEN, PRIVATE, CREDENTIAL, CREDS, API_KEY, APIKEY or ACCESS_KEY as whole
/// words, in any case, with any of `-_. ` between words. `tokenizer` and `max_tokens` are not.
bool is_secret_name(std::string_view name);

/// A command with the values of secret options masked: `--api-key X`, `--api-key=X`,
/// `-x API_KEY=X`, and inside the text that follows `/bin/sh -c`.
std::vector<std::string> mask_secrets(std::span<const std::string> argv);

/// Variables with the values of secret names masked, secrets inside JSON values too.
std::vector<Variable> mask_secrets(std::span<const Variable> environment);

/// A JSON value with the values of secret keys masked at every level, and lists of arguments such
/// as SM_USER_ARGS treated as a command.
opt_ml::Value mask_secrets(const opt_ml::Value& value);

/// The secret values of a job, to be found again in what its programs printed.
class SecretValues {
 public:
  /// Shorter values are left alone: to mask every "1" would hide the text and no secret. [bytes]
  static constexpr std::size_t kShortest = 6;

  SecretValues() = default;
  /// Values of variables with secret names: the job's, and those that we were started with
  /// (NAME=value).
  SecretValues(std::span<const Variable> environment, std::span<const std::string> inherited);

  /// The text with every occurrence masked; passwords inside URLs (`//user:password@`) too.
  [[nodiscard]] std::string mask(std::string text) const;

 private:
  void add(std::string_view name, std::string_view value);

  std::vector<std::string> values_;  ///< longest first, for one may be part of another
};

}  // namespace entrypoint
