// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/option_values.h"

#include <boost/program_options/errors.hpp>
#include <boost/program_options/parsers.hpp>
#include <fmt/format.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {

namespace options = boost::program_options;

namespace {

/// " (did you mean --doctor?)", or nothing.
std::string meant(const std::string& unknown, const options::options_description& known) {
  std::vector<std::string_view> names;
  for (const auto& option : known.options()) names.push_back(option->long_name());
  const auto near =
      smp::near_names(std::string_view(unknown).substr(unknown.find_first_not_of('-')),
                      std::span<const std::string_view>(names));
  return near.empty() ? "" : fmt::format(" (did you mean --{}?)", near.front());
}

}  // namespace

options::options_description option_list(const std::string& title) {
  constexpr unsigned kColumns = 100;
  return options::options_description(title, kColumns, kColumns / 2);
}

OptionValues::OptionValues(const options::options_description& known,
                           std::span<const std::string> arguments, const char* words) {
  try {
    const int style =
        options::command_line_style::unix_style & ~options::command_line_style::allow_guessing;
    options::positional_options_description places;
    if (words != nullptr) places.add(words, -1);
    options::store(options::command_line_parser({arguments.begin(), arguments.end()})
                       .options(known)
                       .positional(places)
                       .style(style)
                       .run(),
                   values_);
  } catch (const options::unknown_option& error) {
    const std::string name = error.get_option_name();
    throw smp::ConfigError("command line: there is no option {}{}; see `train --help`", name,
                           meant(name, known));
  } catch (const options::error& error) {
    throw smp::ConfigError("command line: {}; see `train --help`", error.what());
  }
}

}  // namespace entrypoint
