// SPDX-License-Identifier: Apache-2.0
// Boost.Program_options in the one style that `train` has: long options without abbreviations, one
// wording of mistakes, and no words beside them but where a command says so.
#pragma once

#include <optional>
#include <span>
#include <string>

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

namespace entrypoint {

/// An empty list of options, as wide as the help text; the caller adds to it.
boost::program_options::options_description option_list(const std::string& title);

/// The options that one command line gives, by name.
class OptionValues {
 public:
  /// Throws ConfigError, with a hint to --help, for options that `known` does not have and for
  /// values that are missing or of another type. Words beside options are values of `words`, one
  /// of `known` that takes many; without it they are mistakes.
  OptionValues(const boost::program_options::options_description& known,
               std::span<const std::string> arguments, const char* words = nullptr);

  /// Nothing when the option was not given. `Type` is the one that `known` says.
  template <typename Type>
  [[nodiscard]] std::optional<Type> get(const std::string& name) const {
    if (!has(name)) return std::nullopt;
    return values_[name].as<Type>();
  }
  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }

 private:
  boost::program_options::variables_map values_;
};

}  // namespace entrypoint
