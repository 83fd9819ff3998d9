// SPDX-License-Identifier: Apache-2.0
// The secret values of a job, to be found again in what its programs printed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "entrypoint/plan/launch_plan.h"

namespace entrypoint {

class SecretValues {
 public:
  /// Shorter values are left alone: to mask every "1" would hide the text and no secret. [bytes]
  static constexpr std::size_t kShortest = 6;

  SecretValues() = default;
  /// Values of variables with secret names (plan/secrets.h): the plan's, and those that we were
  /// started with (NAME=value).
  SecretValues(const LaunchPlan& plan, std::span<const std::string> inherited);

  /// The text with every occurrence masked; passwords inside URLs (`//user:password@`) too.
  [[nodiscard]] std::string mask(std::string text) const;

 private:
  void add(std::string_view name, std::string_view value);

  std::vector<std::string> values_;  ///< longest first, for one may be part of another
};

}  // namespace entrypoint
