// SPDX-License-Identifier: Apache-2.0
// The custom options of a job, as users type them: the parser refuses with a ConfigError or gives
// options that hold every word, in order; merged, no key comes twice and the user's options win.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "entrypoint/config/shell_text.h"
#include "entrypoint/plan/mpi_options.h"
#include "smp_runtime/core/error.h"
#include "tests/fuzz/target.h"

namespace {

using entrypoint::MpiOption;
using fuzz::require;

std::vector<std::string> words_of(const std::vector<MpiOption>& options) {
  std::vector<std::string> words;
  for (const MpiOption& option : options) {
    require(!option.words.empty());
    words.insert(words.end(), option.words.begin(), option.words.end());
  }
  return words;
}

std::vector<MpiOption> our_options() {
  const std::vector<std::string> words = {"-mca",
                                          "btl_tcp_if_include",
                                          "eth0",
                                          "-mca",
                                          "pml",
                                          "ob1",
                                          "-mca",
                                          "btl",
                                          "^openib",
                                          "-x",
                                          "PATH",
                                          "-x",
                                          "NCCL_DEBUG=INFO",
                                          "-bind-to",
                                          "none",
                                          "-map-by",
                                          "slot",
                                          "-np",
                                          "4",
                                          "--tag-output"};
  return entrypoint::group_mpi_options(words);
}

void require_unique_keys(const std::vector<MpiOption>& options, std::set<std::string>& keys) {
  for (const MpiOption& option : options) {
    if (!option.key.empty()) require(keys.insert(option.key).second);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const std::string text(bytes, bytes + count);
  const smp::Variables variables = {{"HOME", "/root"}, {"A_B", "c \"d'"}};
  try {
    const auto custom = entrypoint::parse_custom_mpi_options(text, variables);
    const std::vector<std::string> words = words_of(custom.options);
    // Options that were understood are said again in a way that is understood the same.
    const auto again = entrypoint::parse_custom_mpi_options(entrypoint::shell_join(words), {});
    if (!custom.nccl_debug) require(words_of(again.options) == words);

    const auto merged = entrypoint::merge_mpi_options(our_options(), custom.options);
    std::set<std::string> keys;
    require_unique_keys(merged.custom, keys);
    require_unique_keys(merged.ours, keys);  // none of ours has a key of the user's
    for (const MpiOption& option : custom.options) {
      require(option.key.empty() || keys.contains(option.key));
    }
    static_cast<void>(entrypoint::process_count(merged.custom));
  } catch (const smp::ConfigError&) {
    // Refused with a reason.
  }
  return 0;
}
