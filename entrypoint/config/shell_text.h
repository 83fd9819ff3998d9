// SPDX-License-Identifier: Apache-2.0
// Texts that a POSIX shell reads: quoting as Python's shlex does it, and splitting.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/core/variables.h"

namespace entrypoint {

/// One word for a shell, quoted only where needed; empty text is ''.
std::string shell_quote(std::string_view word);

/// Quoted words joined by blanks.
std::string shell_join(std::span<const std::string> words);

/// Splits as a shell would: quotes and backslashes, and $NAME and ${NAME} from `variables` outside
/// single quotes (unset ones are empty). No globs, no commands. Values of variables are not split
/// again. Throws ConfigError that starts with `what` for a quote that does not close, and for a
/// NUL.
std::vector<std::string> shell_split(std::string_view text, const smp::Variables& variables,
                                     std::string_view what);

}  // namespace entrypoint
