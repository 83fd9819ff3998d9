// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/session/background_saves.h"

#include <utility>

#include <sys/resource.h>
#include <unistd.h>

#include "smp_runtime/core/log.h"
#include "smp_runtime/transport/error_text.h"

namespace smp::checkpoint {
namespace {

/// The lowest priority: where all processors are busy it gets what the job's threads leave, and at
/// least 1.5 % of one, until somebody waits for the save.
constexpr int kNice = 19;

}  // namespace

BackgroundSaves::BackgroundSaves(session::Session& session, int limit)
    : session_(session), limit_(static_cast<std::size_t>(limit)), process_(getpid()) {}

BackgroundSaves::~BackgroundSaves() {
  // There is no such thread in a child, and its lock may be held for ever.
  if (getpid() == process_) {
    close();
  } else {
    static_cast<void>(shared_.release());
  }
}

void BackgroundSaves::close() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ends = true;
  }
  shared_->changed.notify_all();
  if (shared_->rounds) shared_->rounds->stop();
  if (shared_->thread.joinable()) shared_->thread.join();
  shared_->jobs.clear();
}

bool BackgroundSaves::are_under_way() {
  const std::lock_guard lock(shared_->mutex);
  return !shared_->jobs.empty();
}

void BackgroundSaves::await_room() { await_fewer_than(limit_); }

void BackgroundSaves::wait() { await_fewer_than(1); }

void BackgroundSaves::await_fewer_than(std::size_t count) {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return shared_->jobs.size() < count; });
  if (shared_->failure) std::rethrow_exception(std::exchange(shared_->failure, nullptr));
}

void BackgroundSaves::add(std::shared_ptr<CheckpointSave> save,
                          std::vector<std::shared_ptr<FileContent>> files,
                          std::function<void(CheckpointSave&)> publish) {
  for (const auto& file : files) file->wait();
  memory_->trim();  // of what was kept: this state has other sizes
  if (!shared_->rounds) shared_->rounds.emplace(session_, "background saves");
  save->meet_by([this](const std::string& what, const std::string& text) {
    return shared_->rounds->all_gather(what, text);
  });
  if (!shared_->thread.joinable()) shared_->thread = std::thread([this] { run(); });
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->jobs.push_back({std::move(save), std::move(files), std::move(publish)});
  }
  shared_->changed.notify_all();
}

void BackgroundSaves::run() {
  // For this thread and those that it starts: where processors are few, training goes first.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
  std::unique_lock lock(shared_->mutex);
  for (;;) {
    shared_->changed.wait(lock, [&] { return shared_->ends || !shared_->jobs.empty(); });
    if (shared_->ends) return;
    Job& job = shared_->jobs.front();  // others are added behind it
    lock.unlock();
    std::exception_ptr failure;
    try {
      write(job);
    } catch (...) {
      failure = std::current_exception();
      SMP_LOG(error, "{}", transport::error_text(failure));
    }
    lock.lock();
    if (!shared_->failure) shared_->failure = failure;
    shared_->jobs.pop_front();
    shared_->changed.notify_all();
  }
}

void BackgroundSaves::write(Job& job) {
  job.save->together([&] {
    with_files([&] {
      for (const auto& file : job.files) job.save->add(file->write(job.save->folder()));
    });
  });
  job.files.clear();  // gives their memory back
  job.publish(*job.save);
}

}  // namespace smp::checkpoint
