// SPDX-License-Identifier: Apache-2.0
#include "opt_ml_layout/resource_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "opt_ml_layout/json_document.h"
#include "smp_runtime/core/error.h"

namespace opt_ml {
namespace {

/// Reads typed members of one file's objects; its errors name the file.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& file) : file_(file.string()) {}

  [[noreturn]] void fail(std::string_view key, const Value* found,
                         std::string_view expected) const {
    const std::string_view kind = found == nullptr ? "nothing" : found->kind_name();
    throw smp::ConfigError("{}: \"{}\" is {}, expected {}; correct the file", file_, key, kind,
                           expected);
  }

  [[nodiscard]] std::string required_text(const Value& object, std::string_view key) const {
    const Value* value = object.find(key);
    if (value == nullptr || value->text() == nullptr || value->text()->empty()) {
      fail(key, value, "text that is not empty");
    }
    return *value->text();
  }

  /// Absent and null leave the default.
  [[nodiscard]] std::string text_or(const Value& object, std::string_view key,
                                    std::string fallback) const {
    const Value* value = object.find(key);
    if (value == nullptr || value->is_null()) return fallback;
    if (value->text() == nullptr) fail(key, value, "text");
    return *value->text();
  }

  [[nodiscard]] std::vector<std::string> host_list(const Value& object) const {
    const Value* value = object.find("hosts");
    constexpr std::string_view kExpected = "a list of at least one host name";
    if (value == nullptr || value->list() == nullptr || value->list()->empty()) {
      fail("hosts", value, kExpected);
    }
    std::vector<std::string> hosts;
    for (const Value& host : *value->list()) {
      if (host.text() == nullptr || host.text()->empty()) fail("hosts", &host, kExpected);
      if (std::ranges::find(hosts, *host.text()) != hosts.end()) {
        throw smp::ConfigError("{}: host \"{}\" is twice in \"hosts\"; correct the file", file_,
                               *host.text());
      }
      hosts.push_back(*host.text());
    }
    return hosts;
  }

  [[nodiscard]] std::vector<InstanceGroup> groups(const Value& document) const {
    const Value* value = document.find("instance_groups");
    if (value == nullptr || value->is_null()) return {};
    if (value->list() == nullptr) fail("instance_groups", value, "a list of objects");
    std::vector<InstanceGroup> groups;
    for (const Value& group : *value->list()) {
      if (group.object() == nullptr) fail("instance_groups", &group, "objects in the list");
      groups.push_back({.name = required_text(group, "instance_group_name"),
                        .instance_type = text_or(group, "instance_type", ""),
                        .hosts = host_list(group)});
    }
    return groups;
  }

  [[nodiscard]] ResourceConfig read(Value document) const {
    if (document.object() == nullptr) {
      throw smp::ConfigError("{}: is {}, expected an object; correct the file", file_,
                             document.kind_name());
    }
    ResourceConfig config;
    config.current_host = required_text(document, "current_host");
    config.hosts = host_list(document);
    if (std::ranges::find(config.hosts, config.current_host) == config.hosts.end()) {
      throw smp::ConfigError(
          "{}: current_host \"{}\" is not in hosts [\"{}\"]; the container was started with a "
          "config "
          "of another job",
          file_, config.current_host, fmt::join(config.hosts, "\", \""));
    }
    config.network_interface_name =
        text_or(document, "network_interface_name", config.network_interface_name);
    config.current_instance_type =
        text_or(document, "current_instance_type", config.current_instance_type);
    // The reference's own default file writes the second name, which its reader does not know.
    config.current_group_name =
        text_or(document, "current_group_name",
                text_or(document, "current_instance_group", config.current_group_name));
    config.groups = groups(document);
    if (const Value* topology = document.find("topology")) config.topology = *topology;
    config.document = std::move(document);
    return config;
  }

 private:
  std::string file_;
};

}  // namespace

std::vector<std::string> ResourceConfig::group_hosts(const std::string& name) const {
  const auto group = std::ranges::find(groups, name, &InstanceGroup::name);
  return group == groups.end() ? std::vector<std::string>{} : group->hosts;
}

ResourceConfig as_one_group(ResourceConfig config) {
  config.groups = {{.name = config.current_group_name,
                    .instance_type = config.current_instance_type,
                    .hosts = config.hosts}};
  const Value hosts = Value::list_of(config.hosts);
  Value group;
  group.set("instance_group_name", config.current_group_name);
  group.set("instance_type", config.current_instance_type);
  group.set("hosts", hosts);
  Value document;
  document.set("current_host", config.current_host);
  document.set("current_instance_type", config.current_instance_type);
  document.set("current_group_name", config.current_group_name);
  document.set("hosts", hosts);
  document.set("instance_groups", Value::List{group});
  document.set("network_interface_name", config.network_interface_name);
  config.document = std::move(document);
  return config;
}

ResourceConfig without_hosts(ResourceConfig config, const std::vector<std::string>& hosts) {
  const auto is_out = [&](const std::string& host) {
    return std::ranges::find(hosts, host) != hosts.end();
  };
  std::erase_if(config.hosts, is_out);
  for (InstanceGroup& group : config.groups) std::erase_if(group.hosts, is_out);
  config.document.set("hosts", Value::list_of(config.hosts));
  if (const Value* listed = config.document.find("instance_groups"); listed && listed->list()) {
    Value::List groups = *listed->list();
    for (Value& group : groups) {
      const std::string name = group.text_of("instance_group_name");
      group.set("hosts", Value::list_of(config.group_hosts(name)));
    }
    config.document.set("instance_groups", std::move(groups));
  }
  return config;
}

ResourceConfig read_resource_config(const Layout& layout) {
  const std::filesystem::path file = layout.resource_config();
  std::optional<Value> document = read_json_file(file);
  if (!document) {
    throw smp::ConfigError(
        "{}: no such file, expected the job's resource config; set SAGEMAKER_BASE_DIR to a job "
        "tree, "
        "or make one with `train --make-tree DIR`",
        file.string());
  }
  return Reader(file).read(std::move(*document));
}

}  // namespace opt_ml
