// SPDX-License-Identifier: Apache-2.0
// Secret values of a job, to be found again in any text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/plan/secret_names.h"

namespace entrypoint {

inline constexpr std::string_view kMask = "******";

class SecretValues {
 public:
  /// Shorter values are not looked for: to mask every "1" would hide the text and no secret.
  /// [bytes]
  static constexpr std::size_t kShortest = 6;

  /// From now on the value is found, as it is and as JSON, Python and URLs write it; of several
  /// lines each by itself, for output comes line by line. Not looked for are short ones, numbers,
  /// tokens such as `<|pad|>` and `[MASK]`, and values of likely names that are nothing but words
  /// (`caption`, `data/train`).
  void add(std::string_view value, Secrecy secrecy);

  /// The same for passwords in the URLs of a text.
  void add_url_passwords(std::string_view text);

  /// The text with every value masked, and passwords in URLs, known or not: what stands between
  /// `//user:` and `@`, and in http a user without a password, which is a token then.
  [[nodiscard]] std::string mask(std::string text) const;

  /// The same; nothing for a text that is fine as it is. Cheap: a line of output costs a search
  /// for each value.
  [[nodiscard]] std::optional<std::string> masked(std::string_view text) const;

 private:
  std::vector<std::string> values_;  ///< longest first, for one may be part of another
};

}  // namespace entrypoint
