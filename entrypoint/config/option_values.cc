// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/option_values.h"

#include <boost/program_options/errors.hpp>
#include <boost/program_options/parsers.hpp>

#include "smp_runtime/core/error.h"

namespace entrypoint {

namespace options = boost::program_options;

options::options_description option_list(const std::string& title) {
  constexpr unsigned kColumns = 100;
  return options::options_description(title, kColumns, kColumns / 2);
}

OptionValues::OptionValues(const options::options_description& known,
                           std::span<const std::string> arguments) {
  try {
    const int style =
        options::command_line_style::unix_style & ~options::command_line_style::allow_guessing;
    const options::positional_options_description no_words;
    options::store(options::command_line_parser({arguments.begin(), arguments.end()})
                       .options(known)
                       .positional(no_words)
                       .style(style)
                       .run(),
                   values_);
  } catch (const options::error& error) {
    throw smp::ConfigError("command line: {}; see `train --help`", error.what());
  }
}

}  // namespace entrypoint
