// SPDX-License-Identifier: Apache-2.0
// Activities by which a rank's time is counted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace smp::record {

enum class Activity : std::uint8_t {
  kForward,    ///< running modules, or the step's body
  kBackward,   ///< their backwards
  kWait,       ///< for messages of other ranks of the pipeline
  kGather,     ///< waiting for parameters that other ranks hold
  kReduce,     ///< waiting for sums of gradients
  kExchange,   ///< waiting for other ranks of tensor parallelism
  kOptimizer,  ///< the optimizer's step
  kData,       ///< neither in a step nor in an optimizer: the script, which makes the next batch
  kDeferred,   ///< gradients of parameters that backwards have left for a wait
};
inline constexpr std::size_t kActivities = 9;

/// As in the timeline and in records: "forward", "wait", "gather", ….
[[nodiscard]] inline std::string_view name_of(Activity activity) {
  static constexpr std::array<std::string_view, kActivities> kNames = {
      "forward",  "backward",  "wait", "gather",  "reduce",
      "exchange", "optimizer", "data", "deferred"};
  return kNames[static_cast<std::size_t>(activity)];
}

/// Rows of a rank in pictures of a step. What waits is drawn beside what computes, for it may be a
/// part of it: a forward waits for gathers.
enum class Lane : std::uint8_t { kModules, kGathers, kReductions, kExchanges, kOptimizer, kData };
inline constexpr std::size_t kLanes = 6;

[[nodiscard]] inline Lane lane_of(Activity activity) {
  static constexpr std::array<Lane, kActivities> kLaneOf = {
      Lane::kModules,   Lane::kModules,   Lane::kModules, Lane::kGathers, Lane::kReductions,
      Lane::kExchanges, Lane::kOptimizer, Lane::kData,    Lane::kModules};
  return kLaneOf[static_cast<std::size_t>(activity)];
}

[[nodiscard]] inline std::string_view name_of(Lane lane) {
  static constexpr std::array<std::string_view, kLanes> kNames = {
      "modules", "gathers", "reductions", "tensor exchanges", "optimizer", "data"};
  return kNames[static_cast<std::size_t>(lane)];
}

}  // namespace smp::record
