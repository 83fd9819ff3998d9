// SPDX-License-Identifier: Apache-2.0
// resourceconfig.json: which hosts the job has and which of them this is.
#pragma once

#include <string>
#include <vector>

#include "opt_ml_layout/paths.h"
#include "opt_ml_layout/value.h"

namespace opt_ml {

struct InstanceGroup {
  std::string name;
  std::string instance_type;
  std::vector<std::string> hosts;  ///< file order, which need not be sorted
};

struct ResourceConfig {
  std::string current_host;
  std::vector<std::string> hosts;  ///< file order; holds current_host
  std::string network_interface_name = "eth0";
  std::string current_instance_type = "local";
  std::string current_group_name = "homogeneousCluster";
  std::vector<InstanceGroup> groups;  ///< empty in local mode
  Value topology;                     ///< list of hosts of an UltraServer; null when absent
  Value document;                     ///< the whole file

  /// Hosts of the group of that name; empty when there is no such group.
  [[nodiscard]] std::vector<std::string> group_hosts(const std::string& name) const;
};

/// `config`, whose hosts are one instance group, with `groups` and `document` made to say so.
ResourceConfig as_one_group(ResourceConfig config);

/// `config` without some of its hosts; a group may have none then.
ResourceConfig without_hosts(ResourceConfig config, const std::vector<std::string>& hosts);

/// The config of a Training job. Throws ConfigError when the file is missing, is not JSON, lacks
/// `hosts` or `current_host`, names a current host outside `hosts`, or has a value of another type.
ResourceConfig read_resource_config(const Layout& layout);

}  // namespace opt_ml
