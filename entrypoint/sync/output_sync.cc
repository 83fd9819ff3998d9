// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/sync/output_sync.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>

#include "entrypoint/sync/folder_watch.h"
#include "smp_runtime/core/error.h"

namespace entrypoint::sync {

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

}  // namespace entrypoint::sync
