// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/host_probe.h"

#include <gtest/gtest.h>

namespace entrypoint {
namespace {

TEST(HostProbe, CountsTheGpusThatNvidiaSmiLists) {
  EXPECT_EQ(count_gpus("GPU 0: NVIDIA H200 (UUID: GPU-1)\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n"), 2);
  EXPECT_EQ(count_gpus("No devices were found\n  MIG 1g.18gb Device 0: (UUID: MIG-1)\n"), 0);
  EXPECT_EQ(count_gpus(""), 0);
}

TEST(HostProbe, SumsNeuronCores) {
  EXPECT_EQ(count_neuron_cores(R"([{"nc_count": 2}, {"nc_count": 2, "x": 1}, {}])"), 4);
  EXPECT_EQ(count_neuron_cores("not json"), 0);
  EXPECT_EQ(count_neuron_cores("{}"), 0);
}

}  // namespace
}  // namespace entrypoint
