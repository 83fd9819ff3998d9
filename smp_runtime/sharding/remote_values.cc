// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/remote_values.h"

#include <fmt/format.h>

#include "smp_runtime/core/error.h"

namespace smp::sharding {
namespace {

/// Has kValuesAreAbsent in it.
std::string absence(const std::string& name, int partition) {
  return advised(
      fmt::format("parameter {} was read or written, and its values are on partition {}, not here",
                  name, partition),
      Advice::kRemoteValue);
}

}  // namespace

at::Tensor RemoteValues::placeholder(const at::Tensor& like, at::IntArrayRef sizes,
                                     const std::string& name, int partition) {
  const std::size_t place = absences_.size();
  absences_.push_back(absence(name, partition));
  return sharding::placeholder(like, sizes, absences_.back(), *this, 0, place);
}

bool RemoteValues::begin_read(int /*unit*/) { return false; }

void RemoteValues::end_read(int /*unit*/) {}

at::Tensor RemoteValues::values(int unit, std::size_t place) { refuse(unit, place); }

void RemoteValues::raise(std::exception_ptr error) const {
  raise_(error);
  std::rethrow_exception(error);
}

void RemoteValues::refuse(int /*unit*/, std::optional<std::size_t> place) const {
  raise(std::make_exception_ptr(UserCodeError("{}", absences_.at(place.value_or(0)))));
}

}  // namespace smp::sharding
