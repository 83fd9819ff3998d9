// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/network/interfaces.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/host.h"

namespace entrypoint {
namespace {

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

/// 169.254.0.0/16 and fe80::/10.
bool is_link_local(const std::string& address) {
  constexpr std::string_view kPrefixes[] = {"169.254.", "fe8", "fe9", "fea", "feb"};
  return std::ranges::any_of(kPrefixes, [&](auto prefix) { return address.starts_with(prefix); });
}

bool is_usable_ipv4(const std::string& address) {
  return !is_ipv6(address) && !is_link_local(address);
}

/// Has an address that other hosts can reach.
bool is_usable(const Interface& interface) {
  return std::ranges::any_of(interface.addresses, std::not_fn(is_link_local));
}

bool has_ipv4(const Interface& interface) {
  return std::ranges::any_of(interface.addresses, is_usable_ipv4);
}

std::vector<std::string> names_of(const std::vector<Interface>& interfaces,
                                  bool (*is_wanted)(const Interface&)) {
  std::vector<std::string> names;
  for (const Interface& interface : interfaces) {
    if (!interface.loopback && is_wanted(interface)) names.push_back(interface.name);
  }
  return names;
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

std::string what_is_found(const Interface* configured) {
  if (configured == nullptr) return "does not exist";
  return is_usable(*configured) ? "has addresses of IPv6 alone" : "has only link-local addresses";
}

std::string what_is_found(const InterfaceQuestion& question) {
  return fmt::format(
      "network interface \"{}\" of resourceconfig.json {} on {}", question.configured,
      what_is_found(find(question.interfaces, question.configured)), question.current_host);
}

}  // namespace

std::vector<std::string> Interface::listen_addresses() const {
  const bool ipv4 = has_ipv4(*this);
  std::vector<std::string> result;
  std::ranges::copy_if(addresses, std::back_inserter(result), [ipv4](const std::string& address) {
    return ipv4 ? is_usable_ipv4(address) : !is_link_local(address);
  });
  return result;
}

InterfaceChoice choose_interface(const InterfaceQuestion& question) {
  const Interface* const configured = find(question.interfaces, question.configured);
  if (configured != nullptr && has_ipv4(*configured)) return {.name = question.configured};
  const bool leads_there = question.route.empty() || question.route == question.configured;
  if (configured != nullptr && is_usable(*configured) && leads_there) {
    return {.name = question.configured, .warning = {}, .note = what_is_found(question)};
  }

  if (!question.several_hosts) {
    return {.warning =
                what_is_found(question) + "; no interface is named, for the job has one host"};
  }
  const auto taken = [&](const std::string& name, std::string_view why) -> InterfaceChoice {
    return {.name = name, .warning = fmt::format("{}; {} {}", what_is_found(question), name, why)};
  };
  const Interface* const route = find(question.interfaces, question.route);
  if (route != nullptr && is_usable(*route) && !route->loopback) {
    return taken(route->name, "leads to the other hosts and is taken");
  }
  std::vector<std::string> candidates = names_of(question.interfaces, has_ipv4);
  if (candidates.empty()) candidates = names_of(question.interfaces, is_usable);
  if (candidates.size() == 1) return taken(candidates.front(), "is the only one and is taken");
  throw smp::ConfigError("{}, and none can be picked among: {}; correct network_interface_name",
                         what_is_found(question), described(question.interfaces));
}

std::vector<Interface> list_interfaces() {
  std::vector<Interface> interfaces;
  for (const smp::NetworkInterface& found : smp::network_interfaces()) {
    Interface one{.name = found.name, .loopback = found.loopback};
    for (const smp::tcp::Address& address : found.addresses) {
      one.addresses.push_back(address.text());
    }
    interfaces.push_back(std::move(one));
  }
  return interfaces;
}

}  // namespace entrypoint
