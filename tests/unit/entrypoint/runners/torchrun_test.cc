// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "entrypoint/process/spawn.h"
#include "entrypoint/runners/job_runner.h"

namespace entrypoint {
namespace {

using testing::ElementsAre;

/// A shell in torchrun's place: two workers with a session each, of which one has a session below
/// it, as a data loader's daemon might, and a helper in torchrun's own group.
class TorchrunLike {
 public:
  TorchrunLike() {
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    pid_ = spawn({.argv = {"/bin/sh", "-c",
                           "setsid sh -c 'setsid sleep 600 & echo $! >&2; echo $$; wait' & "
                           "setsid sh -c 'echo $$; exec sleep 600' & sleep 600 & wait"},
                  .environment = current_environment(),
                  .out = out.write.get(),
                  .err = err.write.get()});
    for (int i = 0; i < 2; ++i) workers_.push_back(read_number(out.read.get()));
    std::ranges::sort(workers_);
    daemon_ = read_number(err.read.get());
  }
  ~TorchrunLike() {
    for (const pid_t worker : workers_) kill(-worker, SIGKILL);
    kill(-daemon_, SIGKILL);
    kill(-pid_, SIGKILL);
    wait_for(pid_);
  }

  [[nodiscard]] const std::vector<pid_t>& workers() const { return workers_; }

 private:
  static pid_t read_number(int descriptor) {
    pid_t number = 0;
    for (char c = 0; read(descriptor, &c, 1) == 1 && c != '\n';) number = number * 10 + (c - '0');
    return number;
  }

  pid_t pid_ = 0;
  pid_t daemon_ = 0;
  std::vector<pid_t> workers_;
};

TEST(Torchrun, WorkersAreTheSessionsThatTorchrunItselfStarted) {
  const TorchrunLike torchrun;

  std::vector<pid_t> found = torchrun_workers(getpid());
  std::ranges::sort(found);

  EXPECT_EQ(found, torchrun.workers());
}

TEST(Torchrun, WithoutWorkersThereAreNone) {
  const pid_t lonely = spawn({.argv = {"/bin/sleep", "600"}, .environment = current_environment()});

  EXPECT_THAT(torchrun_workers(getpid()), ElementsAre());

  kill(-lonely, SIGKILL);
  wait_for(lonely);
}

}  // namespace
}  // namespace entrypoint
