// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/shell_text.h"

#include <algorithm>
#include <cctype>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_one_of(std::string_view set, char c) { return set.find(c) != set.npos; }
bool is_blank(char c) { return is_one_of(" \t\r\n", c); }

class Splitter {
 public:
  Splitter(std::string_view text, const smp::Variables& variables, std::string_view what)
      : text_(text), variables_(variables), what_(what) {}

  std::vector<std::string> split() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (is_blank(c)) {
        end_word();
        ++at_;
      } else if (c == '\'') {
        read_single_quoted();
      } else if (c == '"') {
        read_double_quoted();
      } else if (c == '\\') {
        in_word_ = true;
        ++at_;
        if (at_ < text_.size() && text_[at_] != '\n') word_ += text_[at_];
        ++at_;
      } else {
        in_word_ = true;
        read_plain();
      }
    }
    end_word();
    return std::move(words_);
  }

 private:
  void end_word() {
    if (in_word_) words_.push_back(std::move(word_));
    word_.clear();
    in_word_ = false;
  }

  void read_single_quoted() {
    in_word_ = true;
    const std::size_t end = text_.find('\'', at_ + 1);
    if (end == text_.npos) fail_unclosed('\'');
    word_ += text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
  }

  void read_double_quoted() {
    in_word_ = true;
    const std::size_t start = at_++;
    while (at_ < text_.size() && text_[at_] != '"') {
      const bool escapes =
          text_[at_] == '\\' && at_ + 1 < text_.size() && is_one_of("$`\"\\\n", text_[at_ + 1]);
      if (escapes) {
        if (text_[at_ + 1] != '\n') word_ += text_[at_ + 1];
        at_ += 2;
      } else {
        read_plain();
      }
    }
    if (at_ >= text_.size()) {
      at_ = start;
      fail_unclosed('"');
    }
    ++at_;
  }

  /// One character, or one $NAME or ${NAME}.
  void read_plain() {
    const bool braced = text_.substr(at_, 2) == "${";
    const std::size_t start = at_ + (braced ? 2 : 1);
    std::size_t end = start;
    while (end < text_.size() && is_name_character(text_[end])) ++end;
    const bool is_name = end > start && !std::isdigit(static_cast<unsigned char>(text_[start]));
    const bool closed = !braced || (end < text_.size() && text_[end] == '}');
    if (text_[at_] != '$' || !is_name || !closed) {
      word_ += text_[at_++];
      return;
    }
    word_ += smp::value_or(variables_, text_.substr(start, end - start));
    at_ = end + (braced ? 1 : 0);
  }

  [[noreturn]] void fail_unclosed(char quote) const {
    throw smp::ConfigError("{}: the quote {} at character {} does not close: {}", what_, quote,
                           at_ + 1, text_);
  }

  std::string_view text_;
  const smp::Variables& variables_;
  std::string_view what_;
  std::size_t at_ = 0;
  std::string word_;
  bool in_word_ = false;
  std::vector<std::string> words_;
};

}  // namespace

std::string shell_quote(std::string_view word) {
  const auto is_safe = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || is_one_of("@%+=:,./-_", c);
  };
  if (!word.empty() && std::ranges::all_of(word, is_safe)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\"'\"'";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string shell_join(std::span<const std::string> words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    line += shell_quote(word);
  }
  return line;
}

std::vector<std::string> shell_split(std::string_view text, const smp::Variables& variables,
                                     std::string_view what) {
  if (const std::size_t at = text.find('\0'); at != text.npos) {
    throw smp::ConfigError("{}: character {} is a NUL, which no program can be given; leave it out",
                           what, at + 1);
  }
  return Splitter(text, variables, what).split();
}

}  // namespace entrypoint
