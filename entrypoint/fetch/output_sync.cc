// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/output_sync.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <memory>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "entrypoint/fetch/folder_watch.h"
#include "entrypoint/process/process_runner.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::fetch {

OutputSync::OutputSync(const std::optional<OutputTarget>& target, const opt_ml::Layout& layout,
                       const TransferSettings& settings, ProcessRunner& runner)
    : runner_(runner) {
  if (!target) return;
  try {
    std::filesystem::create_directories(layout.output_intermediate());
    if (!target->prefix) return;
    const S3Location prefix = *target->prefix;
    SMP_LOG(info, "Files of {} are uploaded to {}", layout.output_intermediate().string(),
            prefix.text());
    Pipe pipe = make_pipe();
    const int stop = pipe.read.get();
    const int our_end = pipe.write.get();
    helper_ = runner_.start(HelperProcess{
        .name = "uploading intermediate output",
        .work = reporting([&, stop, our_end]() {
          close(our_end);  // else our own copy would keep the pipe open
          const auto transfer = load_transfer(settings);
          const auto upload = [&](const std::filesystem::path& file, const std::string& name) {
            transfer->upload(file, {.bucket = prefix.bucket, .key = prefix.key + "/" + name});
          };
          return sync_output(layout.output_intermediate(), layout.sync_staging(), upload, stop);
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

std::string sync_output(const std::filesystem::path& folder, const std::filesystem::path& staging,
                        const Upload& upload, int stop) {
  FolderWatch watch(folder);
  UploadQueue queue(folder, staging, upload);
  while (true) {
    for (const auto& file : watch.collect()) queue.add(file);
    pollfd ready[] = {{.fd = stop, .events = POLLIN, .revents = 0},
                      {.fd = watch.fd(), .events = POLLIN, .revents = 0}};
    // Without a limit: the job's length is nobody's to know, and our parent's end closes `stop`.
    if (poll(ready, 2, -1) < 0 && errno != EINTR) {
      throw smp::HostError("poll: {}", std::strerror(errno));
    }
    if (ready[0].revents != 0) break;
  }
  for (const auto& file : watch.collect()) queue.add(file);
  // Files still open at the end, and what the watch could not see.
  queue.finish();  // first, for its failures are tried once more
  for (const auto& file : files_below(folder)) queue.add_if_changed(file);
  queue.finish();
  return fmt::format("{} files uploaded, {} failed", queue.uploaded(), queue.failed());
}

}  // namespace entrypoint::fetch
