// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/secret_values.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include <fmt/format.h>

#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/value.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::string_view kSchemeEnd = "://";

bool is_alphanumeric(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Letters and what joins them: names of columns, folders, schemes.
bool is_words(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return (is_alphanumeric(c) && !is_digit(c)) || c == '_' || c == '-' || c == '.' || c == '/';
  });
}

/// `<pad>`, `</s>`, `[MASK]`: a token of a tokenizer.
bool is_marker(std::string_view text) {
  return (text.starts_with('<') && text.ends_with('>')) ||
         (text.starts_with('[') && text.ends_with(']'));
}

std::string without_quotes(const std::string& text) { return text.substr(1, text.size() - 2); }

std::string percent_encoded(std::string_view text) {
  constexpr std::string_view kPlain = "-._~";
  std::string result;
  for (const char c : text) {
    if (is_alphanumeric(c) || kPlain.find(c) != kPlain.npos) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

std::string percent_decoded(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned byte = 0;
    const char* const digits = text.data() + at + 1;
    const bool is_code = text[at] == '%' && at + 2 < text.size() &&
                         std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    result += is_code ? static_cast<char>(byte) : text[at];
    if (is_code) at += 2;
  }
  return result;
}

/// The secret in the URL whose scheme ends at `at`; empty where it has none. A view into `text`.
std::string_view url_secret(std::string_view text, std::size_t at) {
  const std::string_view scheme = text.substr(0, at);
  std::string_view url = text.substr(at + kSchemeEnd.size());
  url = url.substr(0, url.find_first_of(" \t\r\n\"'<>`"));
  const std::string_view authority = url.substr(0, url.find('/'));
  std::size_t host = authority.rfind('@');
  const std::size_t colon = authority.find(':');
  if (host == url.npos) {
    // A password may hold slashes, which a port does not.
    const bool has_port = colon == url.npos || authority.starts_with('[') ||
                          std::ranges::all_of(authority.substr(colon + 1), is_digit);
    if (has_port) return {};
    host = url.rfind('@');
    if (host == url.npos) return {};
  }
  const std::string_view user = url.substr(0, std::min(colon, host));
  const std::string_view password =
      colon < host ? url.substr(colon + 1, host - colon - 1) : std::string_view();
  const std::string_view last = scheme.substr(scheme.size() - std::min<std::size_t>(5, at));
  const bool is_http = strcasestr(std::string(last).c_str(), "http") != nullptr;
  return password.empty() && is_http ? user : password;
}

/// Calls `use` with the secret of each URL.
template <typename Use>
void for_each_url_secret(std::string_view text, const Use& use) {
  for (std::size_t at = text.find(kSchemeEnd); at != text.npos;
       at = text.find(kSchemeEnd, at + kSchemeEnd.size())) {
    if (const auto secret = url_secret(text, at); !secret.empty()) use(secret);
  }
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

std::string without_url_passwords(std::string_view text) {
  std::string result;
  std::size_t done = 0;
  for_each_url_secret(text, [&](std::string_view secret) {
    const auto begin = static_cast<std::size_t>(secret.data() - text.data());
    if (begin < done) return;  // the password that was just masked has a URL in it
    result.append(text.substr(done, begin - done)).append(kMask);
    done = begin + secret.size();
  });
  return result.append(text.substr(done));
}

}  // namespace

void SecretValues::add(std::string_view value, Secrecy secrecy) {
  for (const std::string& whole : smp::split(value, '\n')) {
    const std::string line(smp::trimmed(whole));
    const bool is_findable = line.size() >= kShortest && line != kMask && !is_marker(line) &&
                             !smp::parse_number<double>(line) &&
                             (secrecy == Secrecy::kSure || !is_words(line));
    if (!is_findable) continue;
    for (const std::string& form :
         {line, without_quotes(opt_ml::to_json(line)), without_quotes(opt_ml::python_repr(line)),
          percent_encoded(line)}) {
      const auto longer = [](const std::string& a, const std::string& b) {
        return a.size() != b.size() ? a.size() > b.size() : a < b;
      };
      const auto place = std::ranges::lower_bound(values_, form, longer);
      if (place == values_.end() || *place != form) values_.insert(place, form);
    }
  }
}

void SecretValues::add_url_passwords(std::string_view text) {
  for_each_url_secret(text, [this](std::string_view secret) {
    add(secret, Secrecy::kSure);
    add(percent_decoded(secret), Secrecy::kSure);
  });
}

std::string SecretValues::mask(std::string text) const {
  for (const std::string& value : values_) replace_all(text, value, kMask);
  return without_url_passwords(text);
}

std::optional<std::string> SecretValues::masked(std::string_view text) const {
  const auto is_in_text = [text](std::string_view part) { return text.find(part) != text.npos; };
  if (!is_in_text(kSchemeEnd) && std::ranges::none_of(values_, is_in_text)) return std::nullopt;
  return mask(std::string(text));
}

}  // namespace entrypoint
