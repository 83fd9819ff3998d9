// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/doctor/findings.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace entrypoint {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

MachineFacts a_machine() {
  return {.shared_memory_bytes = 64 * kGiB,
          .shared_memory_free_bytes = 64 * kGiB,
          .disks = {{.path = "/opt/ml/model", .free_bytes = 100 * kGiB}}};
}

MachineFacts a_gpu_machine() {
  MachineFacts facts = a_machine();
  facts.gpu_device_nodes = facts.has_nvidia_smi = true;
  facts.driver_version = "580.65.06";
  facts.gpus = {"NVIDIA H200", "NVIDIA H200"};
  facts.nccl_libraries = {"/opt/venv/lib/libnccl.so.2"};
  facts.efa.has_gpus = true;
  return facts;
}

const TorchFacts kTorch{.version = "2.11.0+cu130", .cuda = "13.0", .gpus = 2, .nccl = "2.28.9"};

Finding find(const std::vector<Finding>& findings, const std::string& subject) {
  const auto found = std::ranges::find(findings, subject, &Finding::subject);
  return found == findings.end() ? Finding{.subject = "missing " + subject} : *found;
}

Finding judged(const MachineFacts& facts, const std::string& subject,
               const MachineNeeds& needs = {}, const std::optional<TorchFacts>& torch = kTorch) {
  return find(judge_machine(facts, torch, needs), subject);
}

TEST(MachineFindings, AMachineThatLacksNothingHasOnlyGoodLines) {
  for (const MachineFacts& facts : {a_machine(), a_gpu_machine()}) {
    for (const Finding& finding : judge_machine(facts, kTorch, {})) {
      EXPECT_EQ(finding.health, Health::kGood) << finding.subject << ": " << finding.finding;
      EXPECT_EQ(finding.remedy, "") << finding.subject;
    }
  }
}

TEST(MachineFindings, EverySubjectOfTheSpecificationIsThere) {
  const auto findings = judge_machine(a_gpu_machine(), kTorch, {});

  for (const char* subject :
       {"torch", "driver", "gpus", "nccl", "fabric", "memlock", "/dev/shm", "disk"}) {
    EXPECT_EQ(find(findings, subject).subject, subject);
  }
}

TEST(MachineFindings, ADriverIsMeasuredByTorchsCuda) {
  MachineFacts facts = a_gpu_machine();
  facts.driver_version = "570.133.20";

  const Finding old = judged(facts, "driver");

  EXPECT_EQ(old.health, Health::kBad);
  EXPECT_EQ(old.finding, "570.133.20 is older than CUDA 13.0 needs (580)");
  EXPECT_THAT(old.remedy, HasSubstr("driver 580 or newer"));
  TorchFacts older = kTorch;
  older.cuda = "12.8";
  EXPECT_EQ(judged(facts, "driver", {}, older).health, Health::kGood);
  EXPECT_EQ(judged(facts, "driver", {}, std::nullopt).health, Health::kGood);
}

TEST(MachineFindings, NvidiaSmiAndItsWordsCount) {
  MachineFacts facts = a_machine();
  facts.gpu_device_nodes = true;
  EXPECT_THAT(judged(facts, "driver").remedy, HasSubstr("NVIDIA_DRIVER_CAPABILITIES"));

  facts.has_nvidia_smi = true;
  facts.driver_problem = "couldn't communicate with the NVIDIA driver";
  EXPECT_EQ(judged(facts, "driver").finding,
            "nvidia-smi: couldn't communicate with the NVIDIA driver");
}

TEST(MachineFindings, GpusAreMeasuredByWhatTheJobWants) {
  EXPECT_EQ(judged(a_machine(), "gpus", {.instance_type = "ml.m5.large"}).subject, "missing gpus");
  EXPECT_EQ(judged(a_machine(), "gpus", {.instance_type = "ml.p4d.24xlarge"}).health, Health::kBad);
  EXPECT_EQ(judged(a_gpu_machine(), "gpus", {.processes_per_host = 2}).health, Health::kGood);
  const Finding crowded = judged(a_gpu_machine(), "gpus", {.processes_per_host = 8});
  EXPECT_EQ(crowded.health, Health::kWarning);
  EXPECT_EQ(crowded.finding, "2 x NVIDIA H200 for 8 processes");

  TorchFacts blind = kTorch;
  blind.gpus = 0;
  EXPECT_EQ(judged(a_gpu_machine(), "gpus", {}, blind).finding,
            "2 x NVIDIA H200, of which torch can use 0");
}

TEST(MachineFindings, NcclIsThereOnce) {
  EXPECT_EQ(judged(a_gpu_machine(), "nccl").finding, "2.28.9, /opt/venv/lib/libnccl.so.2");
  MachineFacts facts = a_gpu_machine();
  facts.nccl_libraries.emplace_back("/usr/lib/libnccl.so.2");
  EXPECT_EQ(judged(facts, "nccl").health, Health::kWarning);
  facts.nccl_libraries.clear();
  EXPECT_EQ(judged(facts, "nccl").health, Health::kBad);
  EXPECT_EQ(judged(a_machine(), "nccl").subject, "missing nccl");
}

TEST(MachineFindings, EfaThatIsExpectedMustBeUsable) {
  const MachineNeeds p4d{.instance_type = "ml.p4d.24xlarge"};
  MachineFacts facts = a_gpu_machine();
  EXPECT_THAT(judged(facts, "fabric", p4d).remedy, HasSubstr("/dev/infiniband"));

  facts.efa.devices = {"rdmap0s6"};
  facts.efa.provider = false;
  EXPECT_THAT(judged(facts, "fabric", p4d).finding, HasSubstr("no provider"));
  facts.efa.provider = true;
  EXPECT_EQ(judged(facts, "fabric", p4d).health, Health::kWarning);
  EXPECT_THAT(judged(facts, "fabric", p4d).finding, HasSubstr("NCCL will use sockets"));
  facts.efa.nccl_plugin = "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so";
  EXPECT_EQ(judged(facts, "fabric", p4d).health, Health::kGood);
  EXPECT_THAT(judged(facts, "fabric", p4d).finding, HasSubstr("/lib/libnccl-net-ofi.so"));
  EXPECT_EQ(
      judged(a_machine(), "fabric", {.instance_type = "ml.p4d.24xlarge", .efa = EfaSwitch::kOff})
          .health,
      Health::kGood);
}

TEST(MachineFindings, EfaThatIsAskedForAndAbsentIsToldWithWhatIsThere) {
  MachineFacts facts = a_machine();
  facts.efa.other_devices = {"mlx5_0"};
  facts.efa.provider = false;
  facts.efa.providers = {"tcp"};

  const Finding refused =
      judged(facts, "fabric", {.instance_type = "local", .efa = EfaSwitch::kOn});

  EXPECT_EQ(refused.health, Health::kBad);
  EXPECT_THAT(refused.finding, HasSubstr("holds: mlx5_0; libfabric offers: tcp"));
  EXPECT_EQ(judged(facts, "fabric", {.instance_type = "local"}).health, Health::kGood);
}

TEST(MachineFindings, LockedMemoryMattersToAFabricOnly) {
  MachineFacts facts = a_machine();
  facts.memlock_bytes = 65536;
  EXPECT_EQ(judged(facts, "memlock").health, Health::kGood);

  facts.efa.other_devices = {"mlx5_0"};
  EXPECT_EQ(judged(facts, "memlock").health, Health::kBad);
  EXPECT_EQ(judged(facts, "memlock").remedy, "start the container with --ulimit memlock=-1");
}

TEST(MachineFindings, SharedMemoryAndDisksHaveLimits) {
  MachineFacts facts = a_machine();
  facts.shared_memory_bytes = std::uint64_t{64} << 20;
  EXPECT_EQ(judged(facts, "/dev/shm").finding, "0.06 GiB, which data loaders and NCCL use");
  facts.shared_memory_bytes.reset();
  EXPECT_EQ(judged(facts, "/dev/shm").health, Health::kBad);

  facts.disks = {{.path = "/opt/ml/model", .free_bytes = kGiB}};
  EXPECT_EQ(judged(facts, "disk").health, Health::kWarning);
  facts.disks[0].free_bytes = 1024;
  EXPECT_EQ(judged(facts, "disk").health, Health::kBad);
  facts.disks = {{.path = "/x", .free_bytes = 100 * kGiB, .free_files = 3}};
  EXPECT_EQ(judged(facts, "disk").health, Health::kWarning);
  facts.disks = {{.path = "/x", .free_bytes = 100 * kGiB, .writable = false}};
  EXPECT_EQ(judged(facts, "disk").finding, "/x is not writable");
}

TEST(MachineFindings, ABrokenTorchIsQuoted) {
  TorchFacts broken;
  broken.problem = "ImportError: libcudart.so.13: cannot open shared object file";

  EXPECT_EQ(judged(a_machine(), "torch", {}, broken).health, Health::kWarning);
  EXPECT_EQ(judged(a_machine(), "torch", {}, broken).finding, *broken.problem);
}

TEST(MachineFacts, ReadsWhatNvidiaSmiPrints) {
  MachineFacts facts;

  read_gpu_query("580.65.06, NVIDIA H200\n580.65.06, NVIDIA H200\n", facts);

  EXPECT_EQ(facts.driver_version, "580.65.06");
  EXPECT_EQ(facts.gpus, std::vector<std::string>(2, "NVIDIA H200"));
}

TEST(MachineFacts, ReadsTorchsAnswerAfterWarnings) {
  const TorchFacts facts = read_torch_query(
      "UserWarning: something\n"
      R"({"version": "2.11.0", "cuda": "13.0", "gpus": 2, "nccl": "2.28.9"})"
      "\n");
  EXPECT_EQ(facts.version, "2.11.0");
  EXPECT_EQ(facts.gpus, 2);
  EXPECT_FALSE(facts.problem);

  const TorchFacts broken =
      read_torch_query("Traceback (most recent call last):\nModuleNotFoundError: no torch\n");
  EXPECT_EQ(broken.problem, "ModuleNotFoundError: no torch");
}

TEST(Finding, TextHasOneLineEachWithItsRemedyBelow) {
  const std::vector<Finding> findings = {{"gpus", Health::kGood, "none", ""},
                                         {"/dev/shm", Health::kBad, "not there", "make it"}};

  EXPECT_EQ(findings_text(findings),
            "ok       gpus             none\n"
            "bad      /dev/shm         not there\n"
            "                          -> make it\n");
  EXPECT_EQ(findings_exit_code(findings), 1);
  EXPECT_EQ(findings_exit_code({findings[0]}), 0);
}

TEST(Finding, JsonIsForPrograms) {
  EXPECT_EQ(findings_json({{"disk", Health::kWarning, "1 GiB \"free\"", "more"}}),
            "{\n  \"healthy\": true,\n  \"findings\": [\n    {\n      \"subject\": \"disk\",\n"
            "      \"health\": \"warning\",\n      \"finding\": \"1 GiB \\\"free\\\"\",\n"
            "      \"remedy\": \"more\"\n    }\n  ]\n}\n");
}

}  // namespace
}  // namespace entrypoint
