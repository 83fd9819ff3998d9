// SPDX-License-Identifier: Apache-2.0
// Advice on errors of scripts that this launcher knows better than their text does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

struct ScriptError {
  std::string_view error;             ///< an exception with its text, or one of the last words
  std::string_view said;              ///< all that was said with it, a usage text among it
  std::vector<std::string> channels;  ///< that the job has
  bool installs = false;              ///< pip's, and not the script's
  std::string module{};               ///< the entry point's within its package; or empty
};

/// One sentence, at most 150 bytes; empty where nothing is known. Pure.
std::string script_advice(const ScriptError& error);

}  // namespace entrypoint
