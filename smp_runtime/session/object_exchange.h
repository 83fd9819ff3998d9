// SPDX-License-Identifier: Apache-2.0
// Objects between ranks, as bytes: blocking, over the CPU, for control and not for training data.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/session/groups.h"
#include "smp_runtime/session/store_barriers.h"

namespace smp::session {

/// Messages between two ranks over groups of one kind arrive in the order in which they were sent.
/// Every call ends with the barriers' timeout, by an error that begins with `what` and names the
/// absent ranks: WaitTimeout, or HostError for one that was lost, or whose bytes are not those that
/// it gave: they may be unpickled, which runs code.
class ObjectExchange {
 public:
  /// `codes`: a key of this session alone; none where the job has no secret.
  ObjectExchange(StoreBarriers& barriers, Groups& groups, std::optional<MacKey> codes)
      : barriers_(barriers), groups_(groups), codes_(codes) {}

  /// To one rank of the job, which is in this rank's group of `kind` and calls receive(). Blocks
  /// until it has it; what a rank sends to itself is kept, without blocking.
  void send(const std::string& what, topology::Group kind, std::string bytes, int destination);
  /// To all others of the group, who call receive(). Blocks until all have it.
  void broadcast(const std::string& what, topology::Group kind, const std::string& bytes);
  /// Receives the bytes that rank `source` of the job, another one, sent or broadcast.
  std::string receive(const std::string& what, topology::Group kind, int source);
  /// Bytes that this rank sent to itself, the oldest first; nothing if there are none.
  std::optional<std::string> take_own(topology::Group kind);
  /// The bytes of all members of the group, by their rank in it. Collective over it.
  std::vector<std::string> all_gather(const std::string& what, topology::Group kind,
                                      const std::string& bytes);
  /// The same over other ranks of the job, this one among them: those of the `label`, whose group
  /// carries it (Groups::cpu_group_of).
  std::vector<std::string> all_gather(const std::string& what, const std::string& label,
                                      const std::vector<int>& ranks, const std::string& bytes);

 private:
  void send(const std::string& what, topology::Group kind, const std::string& bytes,
            const std::vector<int>& receivers);
  std::vector<std::string> all_gather(const std::string& what, const std::string& label,
                                      const std::vector<int>& ranks, const GroupPtr& channel,
                                      const std::string& bytes);
  [[nodiscard]] Mac code_of(std::initializer_list<MacKey::Field> fields) const;
  void check(const std::string& what, const Mac& code, std::initializer_list<MacKey::Field> fields,
             int source) const;

  StoreBarriers& barriers_;
  Groups& groups_;
  const std::optional<MacKey> codes_;
  std::map<std::string, std::uint64_t> gathers_;  ///< so far, by label
  std::map<topology::Group, std::deque<std::string>> to_self_;
};

}  // namespace smp::session
