// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/mpi_options.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "entrypoint/config/shell_text.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

/// mpirun takes its long options with one dash or two.
struct Form {
  std::string_view name;
  int values;
  std::string_view key;  // empty: the name itself
};

constexpr Form kForms[] = {
    {"np", 1, "np"},
    {"n", 1, "np"},
    {"c", 1, "np"},
    {"host", 1, "host"},
    {"H", 1, "host"},
    {"hostfile", 1, "hostfile"},
    {"machinefile", 1, "hostfile"},
    {"map-by", 1, "map-by"},
    {"npernode", 1, "map-by"},
    {"N", 1, "map-by"},
    {"npersocket", 1, "map-by"},
    {"ppr", 1, "map-by"},
    {"pernode", 0, "map-by"},
    {"bynode", 0, "map-by"},
    {"byslot", 0, "map-by"},
    {"rank-by", 1, "rank-by"},
    {"bind-to", 1, "bind-to"},
    {"bind-to-core", 0, "bind-to"},
    {"bind-to-socket", 0, "bind-to"},
    {"bind-to-none", 0, "bind-to"},
    {"wdir", 1, "wdir"},
    {"wd", 1, "wdir"},
    {"tag-output", 0, "tag-output"},
    {"display-map", 0, "display-map"},
    {"allow-run-as-root", 0, "allow-run-as-root"},
    {"oversubscribe", 0, "oversubscribe"},
    {"nooversubscribe", 0, "oversubscribe"},
    {"prefix", 1, "prefix"},
    {"timeout", 1, "timeout"},
};

std::string_view without_dashes(std::string_view word) {
  word.remove_prefix(word.starts_with("--") ? 2 : word.starts_with('-') ? 1 : 0);
  return word;
}

/// argparse in the reference takes every abbreviation of its only option.
bool is_nccl_debug(std::string_view word) {
  constexpr std::string_view kOption = "--NCCL_DEBUG";
  const std::string_view name = word.substr(0, word.find('='));
  return name.size() > 2 && kOption.starts_with(name);
}

std::string value_of_name(std::string_view word) {
  return std::string(word.substr(0, word.find('=')));
}

class Grouper {
 public:
  Grouper(std::span<const std::string> words, std::string_view source)
      : words_(words), source_(source) {}

  std::vector<MpiOption> group() {
    std::vector<MpiOption> options;
    while (at_ < words_.size()) options.push_back(next());
    return options;
  }

 private:
  MpiOption next() {
    const std::string& word = words_[at_];
    if (!word.starts_with('-')) return take(0, "");
    const std::string_view name = without_dashes(word);
    if (name == "mca" || name == "gmca") {
      MpiOption option = take(2, "");
      option.key = "mca " + option.words[1];
      return option;
    }
    if (word == "-x") {
      MpiOption option = take(1, "");
      option.key = "x " + value_of_name(option.words[1]);
      return option;
    }
    const auto* const form = std::ranges::find(kForms, name, &Form::name);
    return form == std::end(kForms) ? take(0, "") : take(form->values, form->key);
  }

  MpiOption take(int values, std::string_view key) {
    const auto count = static_cast<std::size_t>(values) + 1;
    if (at_ + count > words_.size()) {
      throw smp::ConfigError("{}: \"{}\" lacks its value; add it", source_, words_[at_]);
    }
    const auto part = words_.subspan(at_, count);
    at_ += count;
    return {.words = {part.begin(), part.end()}, .key = std::string(key)};
  }

  std::span<const std::string> words_;
  std::string_view source_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<MpiOption> group_mpi_options(std::span<const std::string> words,
                                         std::string_view source) {
  return Grouper(words, source).group();
}

CustomMpiOptions parse_custom_mpi_options(std::string_view text, const smp::Variables& variables,
                                          std::string_view source) {
  CustomMpiOptions result;
  std::vector<std::string> words = shell_split(text, variables, source);
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_nccl_debug(words[i])) {
      rest.push_back(words[i]);
    } else if (const std::size_t mark = words[i].find('='); mark != std::string::npos) {
      result.nccl_debug = words[i].substr(mark + 1);
    } else if (i + 1 < words.size() && !words[i + 1].starts_with('-')) {
      result.nccl_debug = words[++i];
    } else {
      throw smp::ConfigError("{}: \"{}\" lacks its value, for example INFO; add it", source,
                             words[i]);
    }
  }
  result.options = group_mpi_options(rest, source);
  return result;
}

MergedMpiOptions merge_mpi_options(const std::vector<MpiOption>& ours,
                                   const std::vector<MpiOption>& custom) {
  MergedMpiOptions result;
  for (std::size_t i = 0; i < custom.size(); ++i) {
    const auto same_key = [&](const MpiOption& later) { return later.key == custom[i].key; };
    const auto later = custom.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    const auto successor = std::find_if(later, custom.end(), same_key);
    if (custom[i].key.empty() || successor == custom.end()) {
      result.custom.push_back(custom[i]);
    } else if (*successor != custom[i]) {
      result.notes.push_back(fmt::format("custom MPI option {} gives way to the later {}",
                                         shell_join(custom[i].words),
                                         shell_join(successor->words)));
    }
  }
  for (const MpiOption& option : ours) {
    const auto winner = option.key.empty()
                            ? result.custom.end()
                            : std::ranges::find(result.custom, option.key, &MpiOption::key);
    if (winner == result.custom.end()) {
      result.ours.push_back(option);
    } else if (winner->words.back() != option.words.back()) {
      result.notes.push_back(fmt::format("custom MPI option {} replaces the launcher's {}",
                                         shell_join(winner->words), shell_join(option.words)));
    }
  }
  return result;
}

std::optional<int> process_count(const std::vector<MpiOption>& options, std::string_view source) {
  const auto option = std::ranges::find(options, "np", &MpiOption::key);
  if (option == options.end()) return std::nullopt;
  const std::string& text = option->words.back();
  const auto count = smp::parse_number<int>(text);
  if (!count || *count < 1) {
    throw smp::ConfigError("{}: {} {}: expected a number of processes above 0", source,
                           option->words.front(), text);
  }
  return count;
}

}  // namespace entrypoint
