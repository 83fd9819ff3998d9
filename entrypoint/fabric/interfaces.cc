// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fabric/interfaces.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

bool is_link_local(const std::string& address) { return address.starts_with("169.254."); }

/// Has an address that other hosts can reach.
bool is_usable(const Interface& interface) {
  return std::ranges::any_of(interface.addresses, std::not_fn(is_link_local));
}

const Interface* find(const std::vector<Interface>& interfaces, const std::string& name) {
  const auto found = std::ranges::find(interfaces, name, &Interface::name);
  return found == interfaces.end() ? nullptr : &*found;
}

std::string described(const std::vector<Interface>& interfaces) {
  if (interfaces.empty()) return "none";
  std::string text;
  for (const Interface& interface : interfaces) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", interface.name,
                        fmt::join(interface.addresses, ", "));
  }
  return text;
}

std::string what_is_wrong(const InterfaceQuestion& question) {
  const bool exists = find(question.interfaces, question.configured) != nullptr;
  return fmt::format(
      "network interface \"{}\" of resourceconfig.json {} on {}", question.configured,
      exists ? "has only link-local addresses" : "does not exist", question.current_host);
}

}  // namespace

InterfaceChoice choose_interface(const InterfaceQuestion& question) {
  const Interface* const configured = find(question.interfaces, question.configured);
  if (configured != nullptr && is_usable(*configured)) return {.name = question.configured};

  if (!question.several_hosts) {
    return {.warning =
                what_is_wrong(question) + "; no interface is named, for the job has one host"};
  }
  const auto taken = [&](const std::string& name, std::string_view why) -> InterfaceChoice {
    return {.name = name, .warning = fmt::format("{}; {} {}", what_is_wrong(question), name, why)};
  };
  const Interface* const route = find(question.interfaces, question.route);
  if (route != nullptr && is_usable(*route) && !route->loopback) {
    return taken(route->name, "leads to the other hosts and is taken");
  }
  std::vector<std::string> candidates;
  for (const Interface& interface : question.interfaces) {
    if (!interface.loopback && is_usable(interface)) candidates.push_back(interface.name);
  }
  if (candidates.size() == 1) return taken(candidates.front(), "is the only one and is taken");
  throw smp::ConfigError("{}, and none can be picked among: {}; correct network_interface_name",
                         what_is_wrong(question), described(question.interfaces));
}

}  // namespace entrypoint
