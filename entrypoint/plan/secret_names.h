// SPDX-License-Identifier: Apache-2.0
// Names of variables, hyperparameters, options and members that say that their values are secret.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

enum class Secrecy {
  kNone,
  kLikely,  ///< a key may be one of a cipher or the name of a column
  kSure,
};

class SecretNames {
 public:
  SecretNames() = default;
  /// `more`: words that a job names itself, separated by commas (SM_LAUNCH_SECRETS).
  explicit SecretNames(std::string_view more);

  /// Names are read by word, in any case, with any of `-_. ` between words, and camelCase as two:
  /// `tokenizer` and `max_tokens` hold no TOKEN. Settings of the launcher (SM_LAUNCH_…) are not
  /// secret, nor is PWD, the shell's working folder.
  [[nodiscard]] Secrecy of(std::string_view name) const;

 private:
  std::vector<std::string> more_;  ///< as words between underscores
};

}  // namespace entrypoint
