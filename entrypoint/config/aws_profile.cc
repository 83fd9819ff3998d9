// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/aws_profile.h"

#include <filesystem>

#include "smp_runtime/core/file.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

bool names_profile(std::string_view section, std::string_view profile) {
  constexpr std::string_view kPrefix = "profile";
  if (section == profile) return true;
  return section.starts_with(kPrefix) && section.size() > kPrefix.size() &&
         (section[kPrefix.size()] == ' ' || section[kPrefix.size()] == '\t') &&
         smp::trimmed(section.substr(kPrefix.size())) == profile;
}

std::string text_of(const smp::Variables& environment, std::string_view variable,
                    std::string_view usual) {
  std::filesystem::path path = smp::value_or(environment, variable);
  const std::string home = smp::value_or(environment, "HOME", "/root");
  if (path.empty()) {
    path = std::filesystem::path(home) / ".aws" / usual;
  } else if (path.string().starts_with("~/")) {
    path = std::filesystem::path(home) / path.string().substr(2);
  }
  return smp::read_text(path);
}

}  // namespace

ProfileSettings parse_profile(std::string_view text, std::string_view profile) {
  ProfileSettings result;
  bool is_inside = false;
  for (const std::string& line : smp::split(text, '\n')) {
    const std::string_view content = smp::trimmed(line);
    if (content.empty() || content.front() == '#' || content.front() == ';') continue;
    if (content.front() == '[') {
      is_inside = names_profile(smp::trimmed(content.substr(1, content.find(']') - 1)), profile);
      continue;
    }
    const bool is_nested = line.front() == ' ' || line.front() == '\t';
    const std::size_t equals = content.find('=');
    if (!is_inside || is_nested || equals == std::string_view::npos) continue;
    result[std::string(smp::trimmed(content.substr(0, equals)))] =
        smp::trimmed(content.substr(equals + 1));
  }
  return result;
}

std::string profile_name(const smp::Variables& environment) {
  return smp::value_or(environment, "AWS_PROFILE",
                       smp::value_or(environment, "AWS_DEFAULT_PROFILE", "default"));
}

ProfileSettings read_profile(const smp::Variables& environment) {
  const std::string profile = profile_name(environment);
  ProfileSettings settings =
      parse_profile(text_of(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials"), profile);
  settings.merge(parse_profile(text_of(environment, "AWS_CONFIG_FILE", "config"), profile));
  return settings;
}

}  // namespace entrypoint
