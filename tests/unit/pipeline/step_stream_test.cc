// SPDX-License-Identifier: Apache-2.0
// The stream of a step, on a device that computes nothing: what threads of the engine compute or
// send belongs to the stream of the thread that began the step, and the device says how long it
// took.
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/pipeline/engine/engine.h"
#include "smp_runtime/pipeline/engine/stream_clock.h"
#include "smp_runtime/transport/loopback.h"
#include "tests/unit/pipeline/engine_ranks.h"
#include "tests/unit/pipeline/fake_device.h"
#include "tests/unit/pipeline/wrapped_transport.h"

namespace smp::pipeline::testing {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

using std::chrono::milliseconds;

const c10::impl::DeviceGuardImplRegistrar registered(FakeDevice::kType, new FakeDevice());

/// The current streams at some kind of moment.
class Seen {
 public:
  void note() {
    const std::lock_guard lock(mutex_);
    ids_.push_back(FakeDevice::current());
  }
  std::vector<c10::StreamId> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(ids_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<c10::StreamId> ids_;
};

/// Under whose stream a message is sent: where its tensors are said to be ready.
class WatchedTransport : public WrappedTransport {
 public:
  WatchedTransport(std::unique_ptr<transport::Transport> inner, Seen& sends)
      : WrappedTransport(std::move(inner)), sends_(sends) {}

  void send(int destination, transport::Message message) override {
    sends_.note();
    WrappedTransport::send(destination, std::move(message));
  }

 private:
  Seen& sends_;
};

/// Two ranks; module 0 is on rank 1 and calls module 1 of rank 0.
class StepStream : public ::testing::Test {
 protected:
  StepStream() {
    for (int rank = 0; rank < 2; ++rank) {
      const auto run = [this, rank](int64_t module, TensorTree arguments, bool) {
        computes.note();
        FakeDevice::compute(10);
        if (module == 1) return one(arguments.tensors[0] * 2);
        return engines[static_cast<size_t>(rank)]->call({{.owner = 0, .target = 1}},
                                                        one(arguments.tensors[0] + 1));
      };
      engines.push_back(std::make_unique<Engine>(
          std::make_unique<WatchedTransport>(network.endpoint(rank), sends),
          EngineOptions{.server = {.active_microbatches = 2},
                        .run_module = run,
                        .device = FakeDevice::device(),
                        .describe = {},
                        .memory_in_use = {},
                        .after_backward_outside = {},
                        .direct = {}}));
    }
  }

  /// A step that the ranks begin under these streams.
  void step(c10::StreamId first, c10::StreamId second) {
    std::thread other([&] {
      cuda::use_stream(FakeDevice::stream(second));
      engines[1]->serve();
    });
    cuda::use_stream(FakeDevice::stream(first));
    engines[0]->drive(
        "step", 4,
        [&](int64_t) {
          computes.note();
          const at::Tensor input = at::ones({2}).requires_grad_();
          const auto out = engines[0]->call({{.owner = 1, .target = 0}}, one(input));
          engines[0]->backward({out.tensors[0].sum()}, {at::Tensor()}, 1.0);
        },
        [] {
          return TensorTree{"done", {}};
        });
    other.join();
  }

  Seen sends;
  Seen computes;
  transport::LoopbackNetwork network{2};
  std::vector<std::unique_ptr<Engine>> engines;
};

TEST_F(StepStream, IsThatOfAllThatIsComputedAndSent) {
  for (const c10::StreamId id : {7, 0, 5}) {  // the second step's threads had another one before
    step(id, id);

    EXPECT_THAT(computes.take(), ::testing::AllOf(SizeIs(3 * 4), Each(id)));
    const auto sent = sends.take();
    EXPECT_GE(sent.size(), 8U * 4U) << "requests and replies, forward and backward";
    EXPECT_THAT(sent, Each(id));
  }
}

TEST_F(StepStream, ItsDeviceSaysWhatItComputed) {
  FakeDevice::go_on(false);
  step(1, 2);
  EXPECT_FALSE(engines[0]->group_use().has_value()) << "the device has not done it yet";

  FakeDevice::go_on(true);
  const auto use = engines[0]->group_use();
  ASSERT_TRUE(use.has_value());
  EXPECT_EQ(use->computed, 1.0) << "the host's time would be another";
  EXPECT_EQ(use->forward, 0) << "nobody asks the device for parts";
}

TEST_F(StepStream, NothingMakesAContextOnAnotherDevice) {
  step(3, 4);
  const cuda::StreamEvent made(FakeDevice::stream(1));
  std::thread([&] {  // this thread has set no device
    made.block(FakeDevice::stream(2));
    EXPECT_TRUE(cuda::StreamEvent(FakeDevice::stream(2)).query());
  })
      .join();
  EXPECT_FALSE(FakeDevice::has_context_elsewhere());
}

TEST(StreamClock, TellsOfTheLastStepThatIsDone) {
  cuda::use_stream(FakeDevice::stream(3));
  StreamClock clock(FakeDevice::device());
  EXPECT_FALSE(clock.last().has_value());

  clock.begin_step();
  FakeDevice::compute(10);  // nobody's
  for (const int64_t took : {30, 20}) {
    clock.begin_run();
    clock.begin_run();  // there was none
    FakeDevice::compute(took);
    clock.end_run();
  }
  FakeDevice::compute(40);
  clock.end_step();
  FakeDevice::go_on(false);
  clock.begin_step();
  clock.end_step();

  const auto last = clock.last();
  FakeDevice::go_on(true);
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->total, milliseconds(100));
  EXPECT_EQ(last->computed, milliseconds(50));
  EXPECT_EQ(last->runs, 2);
}

TEST(StreamClock, ForgetsAStepThatHasFailed) {
  cuda::use_stream(FakeDevice::stream(4));
  StreamClock clock(FakeDevice::device());
  clock.begin_step();
  clock.begin_run();
  FakeDevice::compute(5);

  clock.begin_step();
  FakeDevice::compute(7);
  clock.end_step();

  EXPECT_EQ(clock.last()->total, milliseconds(7));
  EXPECT_EQ(clock.last()->runs, 0);
}

}  // namespace
}  // namespace smp::pipeline::testing
