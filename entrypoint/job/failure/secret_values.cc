// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/secret_values.h"

#include <algorithm>

#include "entrypoint/plan/secrets.h"

namespace entrypoint {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// `https://aws:TOKEN@host/`, as pip and git print it.
void mask_url_passwords(std::string& text) {
  constexpr std::string_view kMark = "://";
  for (std::size_t at = 0; (at = text.find(kMark, at)) != std::string::npos;) {
    at += kMark.size();
    const std::size_t end = std::min(text.find_first_of(" \t\n\"'/<>", at), text.size());
    const std::size_t host = text.rfind('@', end);
    const std::size_t colon = text.find(':', at);
    if (host == std::string::npos || host < at || colon >= host) continue;
    text.replace(colon + 1, host - colon - 1, kMask);
  }
}

}  // namespace

SecretValues::SecretValues(const LaunchPlan& plan, std::span<const std::string> inherited) {
  for (const Variable& variable : plan.environment) add(variable.name, variable.value);
  for (const std::string& entry : inherited) {
    const std::size_t mark = entry.find('=');
    if (mark == std::string::npos) continue;
    add(std::string_view(entry).substr(0, mark), std::string_view(entry).substr(mark + 1));
  }
  std::ranges::sort(values_, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
}

void SecretValues::add(std::string_view name, std::string_view value) {
  if (value.size() >= kShortest && is_secret_name(name)) values_.emplace_back(value);
}

std::string SecretValues::mask(std::string text) const {
  for (const std::string& value : values_) replace_all(text, value, kMask);
  mask_url_passwords(text);
  return text;
}

}  // namespace entrypoint
