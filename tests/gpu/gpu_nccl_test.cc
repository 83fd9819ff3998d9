// SPDX-License-Identifier: Apache-2.0
// NCCL itself under our communicator and channel. One GPU shows most of it; the channel needs two.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/channel/staged_copies.h"
#include "smp_runtime/transport/channel/tensor_payload.h"
#include "smp_runtime/transport/nccl/nccl_channel.h"
#include "smp_runtime/transport/nccl/nccl_communicator.h"
#include "smp_runtime/transport/nccl/nccl_library.h"
#include "tests/unit/transport/ring_pair.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// As the driver shows them, whatever Torch makes of it; 0 where they are hidden on purpose.
int gpus_of_the_machine() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && (*visible == '\0' || visible == std::string_view("-1"))) return 0;
  int found = 0;
  for (int number = 0; number < 64; ++number) {  // a container may have got any of them
    if (std::filesystem::exists("/dev/nvidia" + std::to_string(number))) ++found;
  }
  return found;
}

/// Empty where there are that many GPUs, else what is missing.
std::string missing(int gpus) {
  if (nccl_version() == 0) return "this build has no GPU code: no nvcc was found";
  if (!at::hasCUDA()) return "no CUDA device here";
  const int found = c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount();
  return found >= gpus ? "" : fmt::format("{} GPUs here of {} that it takes", found, gpus);
}

// A test that skips where its GPUs are would hide the fault that it is for.
#define SMP_NEEDS_GPUS(count)                                                            \
  if (const std::string reason = missing(count); !reason.empty()) {                      \
    if (gpus_of_the_machine() >= (count)) FAIL() << "this machine has GPUs: " << reason; \
    GTEST_SKIP() << reason;                                                              \
  }

WaitLimit limit(milliseconds timeout = std::chrono::minutes(1)) {
  return WaitLimit::after(timeout, "the test");
}

at::Device gpu(int number) { return {at::kCUDA, static_cast<c10::DeviceIndex>(number)}; }

TEST(GpuNccl, OneRankSendsToItselfAndSums) {
  SMP_NEEDS_GPUS(1);
  const auto library = nccl_library(0);
  NcclCommunicator alone(*library, library->new_id(), {.rank = 0, .size = 1, .name = "NCCL"});
  alone.connect(limit());
  const c10::Stream stream = cuda::side_stream(gpu(0), cuda::Priority::kHigh);
  const at::Tensor sent = at::arange(1 << 20, at::TensorOptions(gpu(0)).dtype(at::kFloat));
  const at::Tensor received = at::empty_like(sent);
  cuda::StreamEvent::record(gpu(0)).block(stream);

  const std::vector<NcclOperation> pair{{.kind = NcclOperation::Kind::kSend,
                                         .from = sent.const_data_ptr(),
                                         .count = sent.nbytes(),
                                         .peer = 0},
                                        {.kind = NcclOperation::Kind::kReceive,
                                         .to = received.data_ptr(),
                                         .count = sent.nbytes(),
                                         .peer = 0}};
  alone.start(pair, cuda::native(stream), limit());
  const std::vector<NcclOperation> sum{{.kind = NcclOperation::Kind::kAllReduce,
                                        .from = received.const_data_ptr(),
                                        .to = received.data_ptr(),
                                        .count = static_cast<size_t>(received.numel()),
                                        .type = at::kFloat}};
  alone.start(sum, cuda::native(stream), limit());
  const cuda::StreamEvent done(stream);
  alone.wait_until([&] { return done.query(); }, limit());

  EXPECT_TRUE(received.equal(sent));
}

TEST(GpuNccl, ARankThatDoesNotComeEndsTheWaitInTime) {
  SMP_NEEDS_GPUS(1);
  const auto library = nccl_library(0);
  NcclCommunicator half(*library, library->new_id(), {.rank = 0, .size = 2, .name = "NCCL"});

  EXPECT_THAT([&] { half.connect(limit(milliseconds(300))); },
              ThrowsMessage<HostError>(HasSubstr("is not done after 300 ms")));
  EXPECT_TRUE(at::full({4}, 2.0, at::TensorOptions(gpu(0))).sum().item<float>() == 8)
      << "the device works on";
}

TEST(GpuNccl, MarksTellWhenAStreamGotThere) {
  SMP_NEEDS_GPUS(1);
  const c10::Stream side = cuda::side_stream(gpu(0), cuda::Priority::kNormal);
  const at::Tensor source = at::full({1 << 28}, 1.0, at::TensorOptions(gpu(0)));
  at::Tensor copy;
  cuda::StreamEvent::record(gpu(0)).block(side);
  {
    const c10::StreamGuard guard(side);
    copy = source.clone();
    for (int i = 0; i < 20; ++i) copy.add_(source);
  }
  const cuda::StreamEvent made(side);
  const bool early = made.query();
  made.block(cuda::current_stream(gpu(0)));
  cuda::note_use(copy, cuda::current_stream(gpu(0)));

  EXPECT_EQ(copy.max().item<float>(), 21);
  EXPECT_FALSE(early) << "or the GPU adds 20 GiB faster than a host goes on";
  EXPECT_TRUE(made.query());
}

TEST(GpuNccl, FiftyCommunicatorsCloseInTime) {
  SMP_NEEDS_GPUS(1);
  const auto library = nccl_library(0);
  const c10::Stream stream = cuda::side_stream(gpu(0), cuda::Priority::kHigh);
  const at::Tensor numbers = at::full({1000}, 3.0, at::TensorOptions(gpu(0)));
  cuda::StreamEvent::record(gpu(0)).block(stream);
  const std::vector<NcclOperation> sum{{.kind = NcclOperation::Kind::kAllReduce,
                                        .from = numbers.const_data_ptr(),
                                        .to = numbers.data_ptr(),
                                        .count = 1000,
                                        .type = at::kFloat}};
  Clock::duration longest{0};

  for (int i = 0; i < 50; ++i) {
    auto alone = std::make_unique<NcclCommunicator>(
        *library, library->new_id(), NcclCommunicator::Place{.rank = 0, .size = 1, .name = "NCCL"});
    alone->connect(limit());
    alone->start(sum, cuda::native(stream), limit());
    const cuda::StreamEvent done(stream);
    alone->wait_until([&] { return done.query(); }, limit());
    const auto begin = Clock::now();
    alone.reset();
    longest = std::max(longest, Clock::now() - begin);
  }

  EXPECT_LT(longest, NcclCommunicator::kCloseLimit) << "it did not close and was aborted";
  EXPECT_TRUE(numbers.eq(3).all().item<bool>());
}

/// A message waits for its own tensors, not for work that the GPU was given behind them.
TEST(GpuNccl, CopiesOfAMessageGoBesideWhatIsComputed) {
  SMP_NEEDS_GPUS(1);
  const at::Tensor tensor = at::arange(1 << 20, at::TensorOptions(gpu(0)).dtype(at::kFloat));
  const at::Tensor large = at::full({1 << 28}, 1.0, at::TensorOptions(gpu(0)));
  StagedCopies copies;
  const auto packed = [&] {
    return pack(
        outgoing({.bytes = "here",
                  .payload = std::make_shared<TensorPayload>(std::vector<at::Tensor>{tensor})}),
        std::nullopt, copies);
  };
  static_cast<void>(packed());  // pinned memory takes long to make
  large.add_(0);                // and a kernel to load
  const Outgoing message =
      outgoing({.bytes = "here",
                .payload = std::make_shared<TensorPayload>(std::vector<at::Tensor>{tensor})});
  for (int i = 0; i < 50; ++i) large.add_(1);

  const PackedMessage sent = pack(message, std::nullopt, copies);
  const at::Tensor there = copies.to(sent.tensors.at(0), gpu(0));
  copies.wait();

  EXPECT_FALSE(cuda::StreamEvent::record(gpu(0)).query())
      << "the copies waited for what is computed, or the GPU adds 100 GiB faster than a host "
         "copies";
  EXPECT_TRUE(sent.tensors.at(0).is_pinned());
  EXPECT_TRUE(sent.tensors.at(0).equal(at::arange(1 << 20).to(at::kFloat)));
  EXPECT_TRUE(there.equal(tensor));
}

/// Both ends in one process, a GPU each.
TEST(GpuNccl, AWireTakesTensorsFromGpuToGpu) {
  SMP_NEEDS_GPUS(2);
  const std::vector<std::shared_ptr<NcclLibrary>> libraries{nccl_library(0), nccl_library(1)};
  const NcclId there = libraries[0]->new_id();
  const NcclId back = libraries[1]->new_id();
  const RingPair rings;
  std::unique_ptr<MessageChannel> channels[2];
  const auto make = [&](int me) {
    const int peer = 1 - me;
    const auto end = [&](const NcclId& id, int rank) {
      auto made = std::make_unique<NcclCommunicator>(
          *libraries[me], id, NcclCommunicator::Place{.rank = rank, .size = 2, .name = "NCCL"});
      made->connect(limit());
      return made;
    };
    auto first = end(there, me);
    auto second = end(back, peer);
    auto tensors = std::make_unique<NcclChannel>(
        std::move(me == 0 ? first : second), std::move(me == 0 ? second : first),
        NcclChannel::Settings{.device = gpu(me), .timeout = std::chrono::minutes(1)});
    channels[me] = std::make_unique<MessageChannel>(
        rings.end(me), std::move(tensors),
        MessageChannel::Settings{.cuda_device = me, .timeout = std::chrono::minutes(1)});
  };
  std::thread other([&] { make(1); });
  make(0);
  other.join();

  std::thread sends([&] {
    for (int i = 0; i < 20; ++i) {
      const at::Tensor tensor = at::arange(i, i + (1 << 20), at::TensorOptions(gpu(0)));
      channels[0]->send(
          outgoing({.bytes = std::to_string(i),
                    .payload = std::make_shared<TensorPayload>(std::vector<at::Tensor>{tensor})}));
    }
  });
  for (int i = 0; i < 20; ++i) {
    Message message = *channels[1]->receive();
    const at::Tensor tensor = take_tensors(message.payload).at(0);
    EXPECT_EQ(message.bytes, std::to_string(i));
    EXPECT_EQ(tensor.device(), gpu(1));
    EXPECT_TRUE(tensor.cpu().equal(at::arange(i, i + (1 << 20))));
  }
  sends.join();
}

}  // namespace
}  // namespace smp::transport
