// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/finding.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/value.h"

namespace entrypoint {
namespace {

std::string_view word(Health health) {
  switch (health) {
    case Health::kGood:
      return "ok";
    case Health::kWarning:
      return "warning";
    case Health::kBad:
      break;
  }
  return "bad";
}

}  // namespace

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text +=
        fmt::format("{:<8} {:<16} {}\n", word(finding.health), finding.subject, finding.finding);
    if (!finding.remedy.empty()) text += fmt::format("{:<25} -> {}\n", "", finding.remedy);
  }
  return text;
}

std::string findings_json(const std::vector<Finding>& findings) {
  constexpr int kIndent = 2;
  opt_ml::Value::List list;
  for (const Finding& finding : findings) {
    opt_ml::Value row = opt_ml::Value::Object{};
    row.set("subject", finding.subject);
    row.set("health", word(finding.health));
    row.set("finding", finding.finding);
    row.set("remedy", finding.remedy);
    list.push_back(std::move(row));
  }
  opt_ml::Value result = opt_ml::Value::Object{};
  result.set("healthy", findings_exit_code(findings) == 0);
  result.set("findings", std::move(list));
  return opt_ml::to_json_indented(result, kIndent) + "\n";
}

int findings_exit_code(const std::vector<Finding>& findings) {
  const bool bad = std::ranges::any_of(
      findings, [](const Finding& finding) { return finding.health == Health::kBad; });
  return bad ? 1 : 0;
}

}  // namespace entrypoint
