// SPDX-License-Identifier: Apache-2.0
// Parameters whose values are on another partition of the pipeline: objects and shapes without
// memory. An operator that reads one fails by the parameter's name, so that nothing is computed
// with what is not here.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "smp_runtime/sharding/value_reads.h"

namespace smp::sharding {

class RemoteValues final : public ValueReader {
 public:
  /// Throws, for the operator's caller, an error of the library.
  using Raise = std::function<void(const std::exception_ptr&)>;

  explicit RemoteValues(Raise raise) : raise_(std::move(raise)) {}
  RemoteValues(const RemoteValues&) = delete;
  RemoteValues& operator=(const RemoteValues&) = delete;
  ~RemoteValues() override { unwatch(*this); }

  /// A tensor of `sizes`, else as `like`, that stands for the parameter `name` of `partition`.
  [[nodiscard]] at::Tensor placeholder(const at::Tensor& like, at::IntArrayRef sizes,
                                       const std::string& name, int partition);

  bool begin_read(int unit) override;
  void end_read(int unit) override;
  [[nodiscard]] at::Tensor values(int unit, std::size_t place) override;
  [[noreturn]] void raise(std::exception_ptr error) const override;
  [[noreturn]] void refuse(int unit, std::optional<std::size_t> place) const override;

 private:
  Raise raise_;
  std::vector<std::string> absences_;  ///< the text of each placeholder
};

}  // namespace smp::sharding
