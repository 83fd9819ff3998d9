// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/launch/output_sync.h"

#include <csignal>
#include <exception>
#include <memory>

#include <unistd.h>

#include "entrypoint/launch/doctor/host_probe.h"
#include "entrypoint/launch/process/helper_result.h"
#include "entrypoint/sync/output_sync.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::launch {

OutputSync::OutputSync(const LaunchPlan& plan, const opt_ml::Layout& layout,
                       const JobSettings& settings, ProcessRunner& runner)
    : runner_(runner) {
  if (!plan.intermediate_output) return;
  try {
    std::filesystem::create_directories(layout.output_intermediate());
    if (!plan.intermediate_output->prefix) return;
    const S3Location prefix = *plan.intermediate_output->prefix;
    SMP_LOG(info, "Files of {} are uploaded to {}", layout.output_intermediate().string(),
            prefix.text());
    Pipe pipe = make_pipe();
    const int stop = pipe.read.get();
    const int our_end = pipe.write.get();
    helper_ = runner_.start(HelperProcess{
        .name = "uploading intermediate output",
        .work = reporting([&, stop, our_end]() {
          close(our_end);  // else our own copy would keep the pipe open
          const auto transfer = fetch::load_transfer(launcher_path(), settings.transfer);
          const auto upload = [&](const std::filesystem::path& file, const std::string& name) {
            transfer->upload(file, {.bucket = prefix.bucket, .key = prefix.key + "/" + name});
          };
          return sync::sync_output(layout.output_intermediate(), layout.sync_staging(), upload,
                                   stop);
        })});
    stop_ = std::move(pipe.write);
  } catch (const std::exception& error) {
    SMP_LOG(error, "intermediate output is not uploaded: {}", error.what());
  }
}

void OutputSync::finish(std::chrono::seconds limit) {
  if (!helper_) return;
  // A byte, not only the close: a helper process forked since may hold a copy of this end.
  [[maybe_unused]] const ssize_t written = write(stop_.get(), "x", 1);
  stop_.close();
  const Deadline deadline = Clock::now() + limit;
  while (!runner_.ended(*helper_)) {
    if (runner_.wait(deadline) != Wake::kDeadline) continue;
    SMP_LOG(error, "intermediate output: not all is uploaded after {} s", limit.count());
    runner_.send(*helper_, SIGKILL);
    return;
  }
  try {
    SMP_LOG(info, "Intermediate output: {}",
            result_of("uploading intermediate output", runner_.ended(*helper_),
                      runner_.collected(*helper_)));
  } catch (const std::exception& error) {
    SMP_LOG(error, "intermediate output is not uploaded: {}", error.what());
  }
}

}  // namespace entrypoint::launch
