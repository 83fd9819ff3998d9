// SPDX-License-Identifier: Apache-2.0
// What Prometheus finds in a text of OpenMetrics
// (https://prometheus.io/docs/specs/om/open_metrics_spec): as strict as the specification, as far
// as gauges and counters go.
#pragma once

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace smp::metrics {

struct ReadSample {
  std::map<std::string, std::string> labels;
  std::string text;  ///< of the number
  [[nodiscard]] double value() const { return std::stod(text); }
};

struct ReadFamily {
  std::string type;
  std::string unit;
  std::string help;
  std::vector<ReadSample> samples;
};
using ReadFamilies = std::map<std::string, ReadFamily>;

/// Takes the labels `{a="x",b="y"}` off the front of a line.
inline std::map<std::string, std::string> take_labels(std::string_view& line) {
  std::map<std::string, std::string> labels;
  const auto take = [&](char expected) {
    if (!line.starts_with(expected)) throw std::runtime_error("a label is broken");
    line.remove_prefix(1);
  };
  take('{');
  while (true) {
    const std::string name(line.substr(0, line.find('=')));
    line.remove_prefix(name.size());
    take('=');
    take('"');
    std::string value;
    while (!line.starts_with('"')) {
      const bool is_escaped = line.starts_with('\\');
      if (is_escaped) line.remove_prefix(1);
      if (line.empty()) throw std::runtime_error("a label does not end");
      value += is_escaped && line[0] == 'n' ? '\n' : line[0];
      line.remove_prefix(1);
    }
    take('"');
    if (!labels.emplace(name, value).second) throw std::runtime_error("a label stands twice");
    if (line.starts_with('}')) break;
    take(',');
  }
  take('}');
  return labels;
}

/// Throws std::runtime_error for a text that is none.
inline ReadFamilies read_open_metrics(std::string_view text) {
  constexpr std::string_view kEnd = "# EOF\n";
  if (!text.ends_with(kEnd)) throw std::runtime_error("the end is missing");
  text.remove_suffix(kEnd.size());
  ReadFamilies families;
  std::string current;
  while (!text.empty()) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(whole.size() + 1);
    std::string_view line = whole;
    const auto word = [&line] {
      const std::string_view taken = line.substr(0, line.find(' '));
      line.remove_prefix(std::min(taken.size() + 1, line.size()));
      return std::string(taken);
    };
    if (line.starts_with("# ")) {
      line.remove_prefix(2);
      const std::string what = word();
      const std::string name = word();
      if (what == "TYPE") {
        if (families.contains(name)) throw std::runtime_error(name + " stands twice");
        current = name;
        families[name].type = line;
      } else if (name != current || !families[current].samples.empty()) {
        throw std::runtime_error("not where its family begins: " + std::string(whole));
      } else if (what == "UNIT") {
        families[name].unit = line;
        if (!name.ends_with("_" + std::string(line))) throw std::runtime_error("no such unit");
      } else if (what == "HELP") {
        families[name].help = line;
      } else {
        throw std::runtime_error("neither: " + std::string(whole));
      }
      continue;
    }
    const std::string name(line.substr(0, line.find('{')));
    line.remove_prefix(name.size());
    const std::string suffix = families[current].type == "counter" ? "_total" : "";
    if (current.empty() || name != current + suffix)
      throw std::runtime_error(name + " is not here");
    ReadSample sample{.labels = take_labels(line)};
    if (!line.starts_with(' ')) throw std::runtime_error("no number");
    sample.text = line.substr(1);
    families[current].samples.push_back(sample);
  }
  return families;
}

}  // namespace smp::metrics
