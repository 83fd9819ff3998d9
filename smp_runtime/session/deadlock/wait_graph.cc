// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/deadlock/wait_graph.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/core/text.h"

namespace smp::session {
namespace {

using nlohmann::json;

std::int64_t begun(const Wait& wait, const std::string& label) {
  const auto found = wait.begun.find(label);
  return found == wait.begun.end() ? 0 : found->second;
}

class Search {
 public:
  explicit Search(const std::map<int, Wait>& waits) : waits_(waits) {}

  bool reaches_dead_end(int rank) {
    path_.push_back(rank);
    const Wait& wait = waits_.at(rank);
    if (is_final(wait)) return true;
    for (const int peer : wait.needs) {
      const auto other = waits_.find(peer);
      if (other == waits_.end() || !is_missing(wait, other->second)) continue;
      if (std::ranges::find(path_, peer) != path_.end()) return true;
      if (seen_.insert(peer).second && reaches_dead_end(peer)) return true;
    }
    path_.pop_back();
    return false;
  }

  [[nodiscard]] const std::vector<int>& path() const { return path_; }

 private:
  const std::map<int, Wait>& waits_;
  std::set<int> seen_;
  std::vector<int> path_;
};

}  // namespace

bool is_missing(const Wait& wait, const Wait& other) {
  return begun(other, wait.label) < wait.turn;
}

bool is_final(const Wait& wait) { return wait.ended || !wait.mismatch.empty(); }

std::string encode(const Wait& wait) {
  return json{{"number", wait.number},     {"label", wait.label}, {"turn", wait.turn},
              {"text", wait.text},         {"needs", wait.needs}, {"ended", wait.ended},
              {"mismatch", wait.mismatch}, {"begun", wait.begun}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<Wait> decode(std::string_view text) {
  try {
    const json value = parse_json<json>(text, "a wait");
    Wait wait{.number = whole_number<std::int64_t>(value.at("number")).value(),
              .label = value.at("label"),
              .turn = whole_number<std::int64_t>(value.at("turn")).value(),
              .text = value.at("text"),
              .ended = value.at("ended"),
              .mismatch = value.at("mismatch")};
    for (const json& rank : value.at("needs"))
      wait.needs.push_back(whole_number<int>(rank).value());
    for (const auto& [label, calls] : value.at("begun").items()) {
      wait.begun[label] = whole_number<std::int64_t>(calls).value();
    }
    return wait;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::vector<int> deadlock_of(const std::map<int, Wait>& waits, int rank) {
  if (!waits.contains(rank)) return {};
  Search search(waits);
  return search.reaches_dead_end(rank) ? search.path() : std::vector<int>{};
}

std::string deadlock_text(const std::map<int, Wait>& waits, const std::vector<int>& path) {
  if (const std::string& known = waits.at(path.back()).mismatch; !known.empty()) return known;
  std::vector<std::string> parts;
  for (const int rank : path) {
    const Wait& wait = waits.at(rank);
    parts.push_back(wait.ended ? fmt::format("rank {} has ended", rank)
                               : fmt::format("rank {} waits in {}", rank, wait.text));
  }
  return fmt::format(
      "{}: none of these calls can end. All ranks of a group make the same calls in the same "
      "order; take this one out of code that only some ranks run, as below `if rank == 0`, or give "
      "all ranks as many batches (drop_last=True)",
      fmt::join(parts, ", "));
}

}  // namespace smp::session
