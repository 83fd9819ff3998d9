// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/secret_names.h"

#include <algorithm>
#include <cctype>

#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::string_view kWords[] = {
    "_SECRET_", "_SECRETS_", "_PASSWORD_",         "_PASSWD_",      "_PASSPHRASE_",
    "_TOKEN_",  "_PRIVATE_", "_CREDENTIAL_",       "_CREDENTIALS_", "_CREDS_",
    "_APIKEY_", "_API_KEY_", "_ACCESS_KEY_",       "_BEARER_",      "_COOKIE_",
    "_DSN_",    "_SAS_",     "_CONNECTION_STRING_"};
// In front they speak of something else: key_bits, auth_type, pass_rate.
constexpr std::string_view kLastWords[] = {"_PASS_", "_PWD_"};
constexpr std::string_view kLikelyLastWords[] = {"_KEY_", "_AUTH_"};

constexpr std::string_view kHarmless[] = {"_PUBLIC_KEY_", "_PRIVATE_IP", "_PRIVATE_DNS_"};

/// "--api-key" and "api.key" become "_API_KEY_", camelCase "apiKey" too; dashes in front make no
/// word.
std::string between_underscores(std::string_view name) {
  std::string result = "_";
  char previous = '\0';
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool starts_word =
        std::isupper(byte) && std::islower(static_cast<unsigned char>(previous));
    if (starts_word) result += '_';
    result += std::isalnum(byte) ? static_cast<char>(std::toupper(byte)) : '_';
    previous = c;
  }
  return result + "_";
}

}  // namespace

SecretNames::SecretNames(std::string_view more) {
  for (const std::string& name : smp::split(more, ',')) {
    if (const auto word = smp::trimmed(name); !word.empty()) {
      more_.push_back(between_underscores(word));
    }
  }
}

Secrecy SecretNames::of(std::string_view name) const {
  if (name == "PWD" || name.starts_with("SM_LAUNCH_")) return Secrecy::kNone;
  std::string text = between_underscores(name);
  for (const std::string_view words : kHarmless) {
    if (const std::size_t at = text.find(words); at != text.npos) {
      text.replace(at, words.size(), "_");
    }
  }
  const auto holds = [&](std::string_view word) { return text.find(word) != text.npos; };
  const auto ends = [&](std::string_view word) { return text.ends_with(word); };
  if (std::ranges::any_of(kWords, holds) || std::ranges::any_of(more_, holds) ||
      std::ranges::any_of(kLastWords, ends)) {
    return Secrecy::kSure;
  }
  return std::ranges::any_of(kLikelyLastWords, ends) ? Secrecy::kLikely : Secrecy::kNone;
}

}  // namespace entrypoint
