// SPDX-License-Identifier: Apache-2.0
// What helps against errors of scripts that this launcher knows better than their text does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint::supervise {

/// One sentence, at most 150 bytes; empty where nothing is known. `error` is an exception with its
/// text, or the last words of a script; `channels` are those that the job has. Pure.
std::string script_advice(std::string_view error, const std::vector<std::string>& channels);

}  // namespace entrypoint::supervise
