// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/instance_table.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::planner {
namespace {

// Data sheets of NVIDIA (nvidia.com/en-us/data-center), each as of 2025; half of what is stated
// "with sparsity".
const std::array kCards = std::to_array<Card>({
    // V100 data sheet: SXM2, 125 TFLOPS of tensor cores, 15.7 in FP32, 900 GB/s.
    {"V100", 16, 15.7, 125, 900, false},
    {"V100-32GB", 32, 15.7, 125, 900, false},
    // T4 data sheet: 65 TFLOPS in FP16, 8.1 in FP32, 320 GB/s.
    {"T4", 16, 8.1, 65, 320, false},
    // A10G: AWS's page on G5 (600 GB/s, 24 GB); 35 TFLOPS in FP32 and 70 of its tensor cores.
    {"A10G", 24, 35, 70, 600},
    // A100 data sheet: 312 TFLOPS in BF16, 19.5 in FP32, 1,555 and 2,039 GB/s.
    {"A100-40GB", 40, 19.5, 312, 1555},
    {"A100-80GB", 80, 19.5, 312, 2039},
    // L4 data sheet: 121 TFLOPS in BF16, 30.3 in FP32, 300 GB/s.
    {"L4", 24, 30.3, 121, 300},
    // L40S data sheet: 362 TFLOPS in BF16, 91.6 in FP32, 864 GB/s.
    {"L40S", 48, 91.6, 362, 864},
    // H100 data sheet: SXM5, 989 TFLOPS in BF16, 67 in FP32, 3,350 GB/s.
    {"H100", 80, 67, 989, 3350},
    // H200 data sheet: as H100, with 141 GB at 4,800 GB/s.
    {"H200", 131, 67, 989, 4800},
});

// AWS's pages on instance types (aws.amazon.com/ec2/instance-types/{p3,p4,p5,g4,g5,g6,g6e}):
// cards and network. Links: NVLink by the cards' data sheets, of which half is one way; PCIe 3.0
// x16 has 16 GB/s one way (T4), 4.0 x16 32 GB/s, x8 (A10G in G5 and L4) half of that.
const std::array kTypes = std::to_array<InstanceType>({
    {"p3.2xlarge", "V100", 1, 150, 10},
    {"p3.8xlarge", "V100", 4, 150, 10},
    {"p3.16xlarge", "V100", 8, 150, 25},
    {"p3dn.24xlarge", "V100-32GB", 8, 150, 100},
    {"p4d.24xlarge", "A100-40GB", 8, 300, 400},
    {"p4de.24xlarge", "A100-80GB", 8, 300, 400},
    {"p5.48xlarge", "H100", 8, 450, 3200},
    {"p5e.48xlarge", "H200", 8, 450, 3200},
    {"p5en.48xlarge", "H200", 8, 450, 3200},
    {"g4dn.xlarge", "T4", 1, 16, 25},
    {"g4dn.2xlarge", "T4", 1, 16, 25},
    {"g4dn.4xlarge", "T4", 1, 16, 25},
    {"g4dn.8xlarge", "T4", 1, 16, 50},
    {"g4dn.12xlarge", "T4", 4, 16, 50},
    {"g4dn.16xlarge", "T4", 1, 16, 50},
    {"g5.xlarge", "A10G", 1, 16, 10},
    {"g5.2xlarge", "A10G", 1, 16, 10},
    {"g5.4xlarge", "A10G", 1, 16, 25},
    {"g5.8xlarge", "A10G", 1, 16, 25},
    {"g5.12xlarge", "A10G", 4, 16, 40},
    {"g5.16xlarge", "A10G", 1, 16, 25},
    {"g5.24xlarge", "A10G", 4, 16, 50},
    {"g5.48xlarge", "A10G", 8, 16, 100},
    {"g6.xlarge", "L4", 1, 16, 10},
    {"g6.2xlarge", "L4", 1, 16, 10},
    {"g6.4xlarge", "L4", 1, 16, 25},
    {"g6.8xlarge", "L4", 1, 16, 25},
    {"g6.12xlarge", "L4", 4, 16, 40},
    {"g6.16xlarge", "L4", 1, 16, 25},
    {"g6.24xlarge", "L4", 4, 16, 50},
    {"g6.48xlarge", "L4", 8, 16, 100},
    {"g6e.xlarge", "L40S", 1, 32, 20},
    {"g6e.2xlarge", "L40S", 1, 32, 20},
    {"g6e.4xlarge", "L40S", 1, 32, 20},
    {"g6e.8xlarge", "L40S", 1, 32, 25},
    {"g6e.12xlarge", "L40S", 4, 32, 100},
    {"g6e.16xlarge", "L40S", 1, 32, 35},
    {"g6e.24xlarge", "L40S", 4, 32, 200},
    {"g6e.48xlarge", "L40S", 8, 32, 400},
});

constexpr double kGpuLatency = 10e-6;
constexpr double kNetworkLatency = 30e-6;
/// What PCIe 3.0 x16 reaches; newer links are faster, and shared by more cards.
constexpr double kHostRate = 12e9;
/// To start a kernel from Python.
constexpr double kLaunchSeconds = 6e-6;

const Card& card_named(std::string_view name) {
  const auto* found = std::ranges::find(kCards, name, &Card::name);
  SMP_CHECK(found != kCards.end(), "no card {}", name);
  return *found;
}

}  // namespace

std::span<const Card> cards() { return kCards; }
std::span<const InstanceType> instance_types() { return kTypes; }

Machines machines_of(std::string_view type, int hosts) {
  const std::string_view plain = type.starts_with("ml.") ? type.substr(3) : type;
  const auto* found = std::ranges::find(kTypes, plain, &InstanceType::name);
  if (found == kTypes.end()) {
    std::vector<std::string_view> names;
    for (const InstanceType& one : kTypes) names.push_back(one.name);
    const auto near = near_names(plain, std::span<const std::string_view>(names));
    throw ConfigError(
        "instance type \"{}\" is not in the planner's table{}; give measured speeds with "
        "--measured FILE",
        type, near.empty() ? "" : fmt::format(" (did you mean ml.{}?)", near.front()));
  }
  const Card& card = card_named(found->card);
  return {.hosts = hosts,
          .ranks_a_host = found->cards,
          .device = {.name = std::string(card.name),
                     .is_gpu = true,
                     .memory_bytes = static_cast<std::int64_t>(card.gib * (1 << 30)),
                     .flops_32 = card.teraflops_32 * 1e12 * kFlopsShare,
                     .flops_16 = card.teraflops_16 * 1e12 * kFlopsShare,
                     .has_bfloat16 = card.has_bfloat16,
                     .bytes_per_second = card.gigabytes_per_second * 1e9 * kBytesShare,
                     .host_bytes_per_second = kHostRate,
                     .operation_seconds = kLaunchSeconds},
          .inside = {.bytes_per_second = found->link_gigabytes_per_second * 1e9 * kLinkShare,
                     .latency_seconds = kGpuLatency},
          .between = {.bytes_per_second = found->network_gigabits_per_second * 1e9 / 8 * kLinkShare,
                      .latency_seconds = kNetworkLatency},
          .source = fmt::format("data sheets of ml.{}", plain)};
}

void check_machines(const Machines& machines) {
  const auto need = [](bool holds, std::string_view what, auto value) {
    if (!holds) throw ConfigError("the planner's machines: {} is {}; expected more", what, value);
  };
  need(machines.hosts >= 1, "the number of hosts", machines.hosts);
  need(machines.ranks_a_host >= 1, "the number of processes a host", machines.ranks_a_host);
  need(machines.device.flops_32 > 0, "the speed of a device", machines.device.flops_32);
  need(machines.device.bytes_per_second > 0, "the speed of its memory",
       machines.device.bytes_per_second);
  need(machines.ranks_a_host == 1 || machines.inside.bytes_per_second > 0,
       "the speed between processes of a host", machines.inside.bytes_per_second);
  need(machines.hosts == 1 || machines.between.bytes_per_second > 0, "the speed between hosts",
       machines.between.bytes_per_second);
}

}  // namespace smp::planner
